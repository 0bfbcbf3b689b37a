"""Frames of trajectories, latents, and dynamics on a system whose law is known."""

import json
import logging

import numpy as np
import pytest
import torch

from data.windows import Trajectory
from robot_rl.guide.dynamics import DynamicsCheck, DynamicsConfig, check_dynamics, fit_dynamics
from robot_rl.guide.frames import encode_frames
from robot_rl.guide.latents import Latents, choose_source
from robot_rl.guide.lpb import calibrate
from robot_rl.task_texts import TaskTexts
from tests.policies.tools import A, S, flow_policy

KEY = "observation.state"
POLICY = flow_policy(observation_steps=2)
SOURCE = choose_source(POLICY, "auto")
MIX = np.random.default_rng(7).normal(size=(A, S))


def trajectory(seed: int, length: int = 20, **more) -> Trajectory:
    """The state drifts by a fixed mixture of the actions, which are random."""
    rng = np.random.default_rng(seed)
    actions = rng.normal(0, 0.01, (length, A))
    state = np.cumsum(np.concatenate([rng.normal(size=(1, S)), 50 * actions @ MIX]), axis=0)
    return Trajectory({KEY: state.astype(np.float32)}, actions, **more)


def frames(count: int = 30, seed: int = 0):
    raw = encode_frames(POLICY, SOURCE, [trajectory(seed + i) for i in range(count)])
    return raw.scaled(Latents.fit(SOURCE, raw.latents, raw.scene))


def test_frames_are_every_observation_and_transitions_what_a_chunk_executes() -> None:
    one, two = trajectory(0, 5), trajectory(1, 4)
    found = encode_frames(POLICY, SOURCE, [one, two])
    assert found.latents.shape == (11, S), "an episode of T steps has T + 1 observations"
    np.testing.assert_array_equal(found.latents[:6], one.observations[KEY])
    assert found.trajectory.tolist() == [0] * 6 + [1] * 5
    np.testing.assert_allclose(found.time[:6], np.arange(6) / 5, rtol=1e-6)
    assert found.start.tolist() == [0, 1, 2, 6, 7]
    assert found.end.tolist() == [3, 4, 5, 9, 10]
    np.testing.assert_allclose(found.actions[4], two.actions[1:4], rtol=1e-6)


def test_no_transition_crosses_a_gap_or_a_step_in_which_nobody_acted() -> None:
    usable = np.array([True, True, True, False, True, True, True, True])
    runs = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    found = encode_frames(POLICY, SOURCE, [trajectory(0, 8, usable=usable, runs=runs)])
    assert found.start.tolist() == [0, 4]
    with pytest.raises(ValueError, match="none of 1 trajectories has 3 consecutive actions"):
        encode_frames(POLICY, SOURCE, [trajectory(0, 2)])


def test_a_recording_without_a_last_observation_is_read_too() -> None:
    whole = trajectory(0, 6)
    cut = Trajectory({KEY: whole.observations[KEY][:-1]}, whole.actions)
    assert encode_frames(POLICY, SOURCE, [cut]).start.tolist() == [0, 1, 2]


def test_joined_frames_keep_their_trajectories_apart() -> None:
    one, two = (encode_frames(POLICY, SOURCE, [trajectory(i, 5)]) for i in (0, 1))
    both = one.joined(two)
    whole = encode_frames(POLICY, SOURCE, [trajectory(0, 5), trajectory(1, 5)])
    for name in ("latents", "trajectory", "time", "start", "end", "actions"):
        assert torch.equal(getattr(both, name), getattr(whole, name)), name
    assert both.transitions_of(torch.tensor([1])).tolist() == [3, 4, 5]


def test_a_dimension_that_hardly_moves_does_not_outweigh_the_others() -> None:
    raw = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    raw[:, 1] = 5.0
    latents = Latents.fit(SOURCE, raw, 2)
    assert float(latents.std[1]) == pytest.approx(5e-3)
    dropped = torch.tensor([[0.0, 6.0], [-50.0, 4.999]])
    torch.testing.assert_close(latents.scaled(dropped)[:, 1], torch.tensor([5.0, -0.2]), atol=1e-3, rtol=0)
    assert float(latents.scaled(dropped)[1, 0]) == -5.0
    again = Latents.from_payload(json.loads(json.dumps(latents.payload())), latents.tensors())
    assert torch.equal(again.scaled(raw), latents.scaled(raw))


def test_dynamics_learn_the_law_and_use_the_actions(tmp_path, caplog) -> None:
    data = frames()
    config = DynamicsConfig(steps=400, hidden=64, layers=2, weight_decay=0.0, learning_rate=3e-3)
    with caplog.at_level(logging.WARNING):
        model, check = fit_dynamics(tmp_path / "run", config, data, seed=0)
        check.warn()
    ratios = check.to_json()
    assert ratios["stay_ratio"] > 3
    assert ratios["permuted_ratio"] > 2
    assert not caplog.records
    assert not any(parameter.requires_grad for parameter in model.parameters())
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["held_out_loss"] == pytest.approx(check.error, rel=1e-4)
    again, _ = fit_dynamics(tmp_path / "run", config, data, seed=0)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())


def test_interrupted_dynamics_end_with_the_same_weights(tmp_path, monkeypatch) -> None:
    from robot_rl.guide import dynamics

    data = frames(6)
    config = DynamicsConfig(steps=30, hidden=8, layers=1, checkpoint_steps=10, warmup=5)
    whole, _ = fit_dynamics(tmp_path / "whole", config, data, seed=1)
    loss, calls = dynamics._loss, 0

    def interrupt(*arguments):
        nonlocal calls
        calls += 1
        if calls > 17:
            raise KeyboardInterrupt
        return loss(*arguments)

    monkeypatch.setattr(dynamics, "_loss", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit_dynamics(tmp_path / "cut", config, data, seed=1)
    monkeypatch.undo()
    resumed, _ = fit_dynamics(tmp_path / "cut", config, data, seed=1)
    assert all(torch.equal(resumed.state_dict()[key], value) for key, value in whole.state_dict().items())


def test_untrained_dynamics_say_that_nothing_changes_and_are_warned_about(caplog) -> None:
    from robot_rl.guide.dynamics import LatentDynamics

    data = frames(3)
    model = LatentDynamics(S, 3, A, hidden=8, layers=2)
    check = check_dynamics(model, data, torch.arange(len(data.start)))
    assert check.error == check.stay == check.permuted
    with caplog.at_level(logging.WARNING):
        check.warn()
    assert "1.0 times better" in caplog.text
    assert "no handle" in caplog.text
    assert DynamicsCheck(1.0, 3.0, 2.0, 5).to_json()["stay_ratio"] == 3.0


def test_a_demonstrations_own_frames_do_not_count_as_near_it() -> None:
    data = frames(4)
    bank, own, _ = calibrate(data, 10_000, seed=0)
    assert torch.equal(bank, data.latents)
    for row in (0, 30, 83):
        others = data.latents[data.trajectory != data.trajectory[row]]
        assert float(own[row]) == pytest.approx(
            float((others - data.latents[row]).norm(dim=1).min()), rel=1e-5
        )
    few, *_ = calibrate(data, 40, seed=0)
    assert few.shape == (40, S)
    with pytest.raises(ValueError, match="one demonstration is not enough"):
        calibrate(frames(1), 100, seed=0)


def test_a_demonstration_is_measured_to_those_of_its_own_task() -> None:
    """Each demonstration of one task lies beside one of the other."""
    texts = TaskTexts(("left", "right"))
    told = [trajectory(seed, task=text) for text in texts.texts for seed in range(3)]
    raw = encode_frames(POLICY, SOURCE, told)
    data = raw.scaled(Latents.fit(SOURCE, raw.latents, raw.scene))
    assert data.tasks(texts).tolist() == [0] * 63 + [1] * 63
    assert not data.tasks(TaskTexts()).any()
    mixed, apart = (calibrate(data, 10_000, 0, known) for known in (None, texts))
    assert float(mixed[1].max()) == 0.0
    assert float(apart[1].min()) > 0.0
    assert torch.equal(apart[2], data.tasks(texts))
    assert torch.equal(apart[1][:63], apart[1][63:])
    with pytest.raises(ValueError, match="one demonstration of 'right' is not enough"):
        calibrate(encode_frames(POLICY, SOURCE, told[:4]), 10_000, 0, texts)
    with pytest.raises(ValueError, match="'left' is none of those"):
        data.tasks(TaskTexts(("right", "up")))
