from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from data.features import Feature
from data.records import EpisodeBuilder, Outcome, Source, Step
from data.store import EpisodeStore
from hardware.action_spec import ActionGroup, ActionSpec
from policies.checkpoint import load, read_header
from policies.flow_config import FlowConfig
from robot_rl.runs import RunError
from robot_rl.train.cloning import TrainConfig, train
from robot_rl.train.demonstrations import Selection, read_demonstrations
from robot_rl.train.fitting import learning_rate

SPEC = ActionSpec(
    (ActionGroup("arm", 2, "delta", "position", "base", unit="m", low=(-0.05,), high=(0.05,)),), 20.0
)
NETWORK = FlowConfig(
    inputs=("observation.state",),
    horizon=8,
    executed_steps=4,
    hidden=48,
    layers=2,
    frequencies=4,
    steps=5,
    image_size=(8, 8),
    image_features=4,
)


def record(path: Path, count: int, length: int = 20, *, images: bool = False) -> None:
    """Walk in circles: the state names the phase, and the action turns with it, so that holding it fails."""
    features = {
        "observation.state": Feature((4,), "float32"),
        "observation.wrench": Feature((2,), "float32", "N"),
    }
    if images:
        features["observation.images.top"] = Feature((9, 11, 3), "uint8")
    store = EpisodeStore(path, features=features, action_spec=SPEC.to_json())
    rng = np.random.default_rng(0)

    def observe(phase: float, place: np.ndarray) -> dict:
        seen = {
            "observation.state": np.array([np.cos(phase), np.sin(phase), *place], np.float32),
            "observation.wrench": rng.normal(size=2).astype(np.float32),
        }
        picture = np.full((9, 11, 3), int(100 + 50 * np.cos(phase)), np.uint8)
        return seen | ({"observation.images.top": picture} if images else {})

    for number in range(count):
        phase, place = rng.uniform(0, 2 * np.pi), rng.uniform(-0.2, 0.2, 2)
        builder = EpisodeBuilder(id=f"e{number}", task="circle", seed=number)
        builder.start(observe(phase, place))
        for step in range(length):
            action = 0.04 * np.array([-np.sin(phase), np.cos(phase)])
            phase, place, time = phase + 0.6, place + action, step / 20
            done = Step(action=action, source=Source.DEMO, wall_time=time, monotonic_time=time)
            builder.append(done, observe(phase, place))
        store.write(builder.finish(Outcome.SUCCESS if number else Outcome.FAILURE))


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demos") / "store"
    record(path, 24)
    return path


def config(demos: Path, out: Path, **more: object) -> TrainConfig:
    small = {"steps": 30, "batch": 32, "checkpoint_steps": 10, "warmup": 5, "network": NETWORK}
    return TrainConfig(data=demos, out=out, **(small | more))  # type: ignore[arg-type]


def test_training_beats_holding_the_last_action_on_held_out_demonstrations(demos, tmp_path) -> None:
    seen = []
    out = train(
        config(demos, tmp_path / "run", steps=250, batch=64, checkpoint_steps=1000, learning_rate=3e-3),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[0] == (1, 250)
    assert seen[-1] == (250, 250)
    result = json.loads((out / "result.json").read_text())
    error = result["held_out_error"]
    assert result["demonstrations"] == 23, "the failed demonstration is not imitated"
    assert result["held_out"] == "2 of 23 demonstrations"
    assert [(j["name"], j["unit"]) for j in error["joints"]] == [("arm.x", "m"), ("arm.y", "m")]
    assert all(joint["ratio"] < 0.7 for joint in error["joints"]), error["joints"]
    losses = [
        json.loads(line)["loss"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
        if "loss" in line
    ]
    assert losses[-1] < 0.6 * losses[0]
    page = (out / "report.html").read_text()
    assert "beats holding the last action" in page
    assert "arm.y" in page
    policy = load(out)
    assert policy.hash() == result["policy_hash"]
    assert policy.spec.action_spec == SPEC
    assert set(policy.spec.features) == {"observation.state"}


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_policy_to_the_bit(demos, tmp_path) -> None:
    whole = train(config(demos, tmp_path / "whole"))
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.robot_rl.train.test_cloning import config, train\n"
        "stop = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 17 else None\n"
        "train(config(Path(sys.argv[1]), Path(sys.argv[2])), progress=stop)\n"
    )
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", script, str(demos), str(tmp_path / "killed")]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(RunError, match="--resume"):
        train(config(demos, tmp_path / "killed"))
    seen: list[int] = []
    resumed = train(
        config(demos, tmp_path / "killed", resume=True), progress=lambda step, _total: seen.append(step)
    )
    assert seen[0] == 11, "at most the last checkpoint interval is lost"
    assert read_header(whole)["hash"] == read_header(resumed)["hash"]
    assert (whole / "metrics.jsonl").read_text() == (resumed / "metrics.jsonl").read_text()


def test_same_seed_same_policy_and_other_seed_another(demos, tmp_path) -> None:
    hashes = [
        read_header(train(config(demos, tmp_path / str(i), seed=seed, steps=3)))["hash"]
        for i, seed in enumerate((0, 0, 1))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_inputs_are_filled_in_from_the_data(tmp_path) -> None:
    record(tmp_path / "store", 3, images=True)
    network = replace(NETWORK, inputs=(), observation_steps=2)
    out = train(config(tmp_path / "store", tmp_path / "run", network=network, steps=2, holdout=0.5))
    policy = load(out)
    assert set(policy.spec.features) == {"observation.images.top", "observation.state", "observation.wrench"}
    assert policy.spec.features["observation.images.top"].shape == (9, 11, 3), "the robot's full size"
    assert "blocks of each of 2 demonstrations" in json.loads((out / "result.json").read_text())["held_out"]


def test_relative_actions_are_normalised_by_their_own_statistics(tmp_path) -> None:
    path = tmp_path / "store"
    feature = {"observation.state": Feature((2,), "float32", "rad")}
    group = ActionGroup("arm", 2, "absolute", "joint", unit="rad", low=(-10.0,), high=(10.0,))
    store = EpisodeStore(path, features=feature, action_spec=ActionSpec((group,), 20.0).to_json())
    builder = EpisodeBuilder(id="a", task="t", seed=0)
    rows = np.stack([np.linspace(-8, 8, 31), np.sin(np.arange(31))], 1)
    builder.start({"observation.state": rows[0].astype(np.float32)})
    for row, after in pairwise(rows):
        step = Step(action=row + 0.1, source=Source.DEMO, wall_time=0.0, monotonic_time=0.0)
        builder.append(step, {"observation.state": after.astype(np.float32)})
    store.write(builder.finish(Outcome.SUCCESS))
    network = replace(NETWORK, relative_to="observation.state", action_normalization="mean_std")
    policy = load(train(config(path, tmp_path / "run", network=network, steps=1, holdout=0)))
    # At most 7 steps of 16/30 ahead, 3.2 on average (fewer near the end): not the spread of -8 .. 8.
    assert 1.0 < float(policy.action_normalizer.scale[0]) < 1.4
    assert float(policy.action_normalizer.offset[0]) == pytest.approx(0.1 + 3.2 * 16 / 30, abs=0.2)
    assert not (tmp_path / "run" / "report.html").exists()


def test_learning_rate_rises_and_falls_to_zero(tmp_path) -> None:
    made = TrainConfig(data=tmp_path, out=tmp_path, steps=100, warmup=10, learning_rate=1.0)
    rates = [learning_rate(made, step) for step in (0, 9, 50, 100)]
    assert rates == pytest.approx([0.1, 0.5 * (1 + np.cos(0.09 * np.pi)), 0.5, 0.0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"steps": 0}, "steps is 0"),
        ({"average": 1.0}, "average is 1.0"),
        ({"network": FlowConfig(conditions=("good",))}, "conditions"),
    ],
)
def test_configuration_is_checked_when_built(tmp_path, more, message) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(data=tmp_path, out=tmp_path, **more)


def test_data_that_do_not_fit_are_named(demos, tmp_path) -> None:
    with pytest.raises(ValueError, match="holds no demonstrations"):
        read_demonstrations(tmp_path, Selection())
    with pytest.raises(ValueError, match=r"no observation\.touch; it has observation\.state"):
        read_demonstrations(demos, Selection(inputs=("observation.touch",)))
    with pytest.raises(ValueError, match="24 episodes, none that ended in unknown"):
        read_demonstrations(demos, Selection(outcomes=("unknown",)))
    with pytest.raises(ValueError, match="No step may be imitated"):
        train(config(demos, tmp_path / "run", sources=("human",)))


def test_real_recording_is_read_with_its_cameras(real_data, tmp_path) -> None:
    folder = real_data / "lerobot_v3_piper"
    if not folder.is_dir():
        pytest.skip("the recording of the Piper arm is absent")
    selection = Selection(
        inputs=("observation.state", "observation.images.top"), image_size=(12, 20), action_unit="deg"
    )
    read = read_demonstrations(folder, selection)
    assert read.action_spec.size == 7
    assert read.action_spec.rate_hz == 15
    assert set(read.action_spec.units) == {"deg"}
    assert len(read.trajectories) == 1
    pictures = read.trajectories[0].observations["observation.images.top"]
    assert pictures.shape == (300, 12, 20, 3)
    assert read.features["observation.images.top"].shape == (240, 424, 3)
    assert torch.from_numpy(pictures[::50].astype(np.float32)).std() > 5


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 2**70}, {"learning_rate": float("nan")}])
def test_seeds_and_rates_that_no_generator_or_optimiser_takes_are_refused(tmp_path, wrong) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is "):
        TrainConfig(data=tmp_path, out=tmp_path, **wrong)
