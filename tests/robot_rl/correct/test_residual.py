"""The residual corrector: bit-equal before training, bounded after, saved and loaded exactly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.steps import ACTION_COLUMNS, STEP_COLUMNS
from robot_rl.control import ControlLoop, LoopConfig, run_wave
from robot_rl.correct.corrector import CorrectorInput
from robot_rl.correct.history import History
from robot_rl.correct.inputs import InputConfig, base_actions
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from tests.robot_rl.scripted import FEATURES, CountingEnv, RampPolicy

INPUTS = InputConfig(keys=tuple(FEATURES), history_keys=("observation.wrench",), offsets=(1, 2))
SCALE = (0.2, 0.0)
ENDLESS = {"endless": True}


def _network(*, trained: bool) -> ResidualNetwork:
    torch.manual_seed(0)
    width = INPUTS.width(FEATURES, 2)
    network = ResidualNetwork(ResidualConfig(INPUTS), np.zeros(width), np.ones(width), SCALE, (0.4, 1.0))
    if trained:
        torch.nn.init.normal_(network.head.weight, std=3.0)
    return network


def _episode(refiner: Refiner | None, *, deterministic: bool = True):
    policy = RampPolicy(noise_share=0.1)
    return run_wave([CountingEnv()], [3], policy, refiner, deterministic=deterministic, options=ENDLESS)[0]


def test_width_counts_present_and_past_inputs() -> None:
    assert INPUTS.width(FEATURES, 2) == (2 + 1) + 2 * (1 + 2)


def test_untrained_it_returns_the_base_action_bit_equal_through_the_live_path() -> None:
    refined = _episode(Refiner(correct=ResidualCorrector(_network(trained=False))))
    base = _episode(None)
    np.testing.assert_array_equal(refined.action, base.action)
    assert not refined.extra["residual"].any()


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_correction_never_exceeds_its_scale_and_leaves_excluded_dimensions_alone(
    deterministic: bool,
) -> None:
    episode = _episode(
        Refiner(correct=ResidualCorrector(_network(trained=True))), deterministic=deterministic
    )
    correction = np.abs(episode.action_policy - episode.action_base)
    assert correction[:, 0].max() <= np.float32(0.2) + 1e-12  # the difference itself is rounded
    assert correction[:, 0].max() > 0.01
    np.testing.assert_array_equal(episode.action_policy[:, 1], episode.action_base[:, 1])


def test_inputs_of_a_recorded_episode_are_those_the_loop_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    live = InputConfig.live

    def remember(self: InputConfig, request: object) -> np.ndarray:
        seen.append(live(self, request))
        return seen[-1]

    monkeypatch.setattr(InputConfig, "live", remember)
    episode = _episode(Refiner(correct=ResidualCorrector(_network(trained=True))))
    recorded = INPUTS.recorded(episode)
    assert recorded.shape == (len(episode) + 1, INPUTS.width(FEATURES, 2))
    np.testing.assert_array_equal(recorded[:-1], np.concatenate(seen))


def test_a_zeroed_sensor_is_zero_live_and_recorded_and_the_rest_stays() -> None:
    episode = _episode(None)
    blind = InputConfig(keys=tuple(FEATURES), offsets=(), zeroed=("observation.wrench",))
    recorded = blind.recorded(episode)
    assert not recorded[:, 2].any()
    np.testing.assert_array_equal(recorded[:, :2], episode.observations["observation.state"])


@pytest.mark.parametrize(("executed", "delay"), [(3, 0), (5, 0), (4, 0), (3, 2)])
def test_the_base_action_after_a_time_limit_is_what_the_loop_would_have_executed(
    executed: int, delay: int
) -> None:
    """Ten steps end in the middle or at the border of a chunk; one more step tells what was due."""
    config = LoopConfig(delay=delay)

    def run(steps: int):
        env = CountingEnv()
        env.max_steps = steps
        loop = ControlLoop([env], RampPolicy(horizon=8, executed=executed), config=config)
        return loop.run([0], options=ENDLESS)[0]

    planned = base_actions(run(10), executed, bootstrap=True)
    np.testing.assert_array_equal(planned[10], run(11).action_base[10].astype(np.float32))


def test_the_base_action_after_a_time_limit_is_right_after_a_step_that_was_lost() -> None:
    env = CountingEnv()
    env.max_steps = 10
    loop = ControlLoop([env], RampPolicy(horizon=8, executed=4))
    whole = loop.run([0], options=ENDLESS)[0]
    assert [chunk.first_step for chunk in whole.chunks] == [0, 4, 8]
    rows = {name: np.delete(getattr(whole, name), 8, 0) for name in (*ACTION_COLUMNS, *STEP_COLUMNS)}
    observations = {key: np.delete(value, 9, 0) for key, value in whole.observations.items()}
    extra = {key: np.delete(value, 8, 0) for key, value in whole.extra.items()}
    lossy = replace(whole, **rows, observations=observations, extra=extra)
    np.testing.assert_array_equal(
        base_actions(lossy, 4, bootstrap=True)[-1], base_actions(whole, 4, bootstrap=True)[-1]
    )


def test_the_base_action_is_refused_where_no_chunk_covers_it() -> None:
    with pytest.raises(ValueError, match=r"No chunk of episode .* covers its last observation"):
        base_actions(_episode(None), executed_steps=1, bootstrap=True)


def test_a_saved_refiner_acts_bit_equal_and_names_its_base(tmp_path: Path) -> None:
    refiner = Refiner(correct=ResidualCorrector(_network(trained=True)), base_hash="ramp")
    saved = save_refiner(tmp_path, refiner)
    loaded = load_refiner(tmp_path)
    np.testing.assert_array_equal(_episode(loaded).action, _episode(refiner).action)
    assert (loaded.base_hash, loaded.version) == ("ramp", saved.version)


def test_a_changed_tensor_file_is_refused(tmp_path: Path) -> None:
    save_refiner(tmp_path, Refiner(correct=ResidualCorrector(_network(trained=True))))
    other = save_refiner(tmp_path / "other", Refiner(correct=ResidualCorrector(_network(trained=False))))
    assert other.version
    (tmp_path / "other" / "correct.safetensors").replace(tmp_path / "correct.safetensors")
    with pytest.raises(ValueError, match="are not those that its manifest"):
        load_refiner(tmp_path)


def test_a_missing_refiner_names_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="robot-rl refine"):
        load_refiner(tmp_path)


class BrokenSensor(CountingEnv):
    """Its force sensor says `value`."""

    value = np.inf

    def _observe(self) -> dict[str, np.ndarray]:
        return super()._observe() | {"observation.wrench": np.array([self.value], np.float32)}


class TwoTasks(CountingEnv):
    """Told one of two texts, by the seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None):
        self.task_text = ("count up", "count on")[(seed or 0) % 2]
        return super().reset(seed=seed, options=options)


def test_tasks_are_told_apart_alike_in_the_loop_and_in_recordings(tmp_path: Path) -> None:
    inputs = replace(INPUTS, texts=("count on", "count up"))
    width = inputs.width(FEATURES, 2)
    assert width == INPUTS.width(FEATURES, 2) + 2
    torch.manual_seed(0)
    network = ResidualNetwork(ResidualConfig(inputs), np.zeros(width), np.ones(width), SCALE, (0.4, 1.0))
    torch.nn.init.normal_(network.head.weight, std=3.0)
    seen = []
    corrector = ResidualCorrector(network)
    save_refiner(tmp_path, Refiner(correct=corrector))
    refiner = load_refiner(tmp_path)
    found = type(inputs).live
    try:
        type(inputs).live = lambda self, request: seen.append(found(self, request)) or seen[-1]
        episodes = run_wave([TwoTasks() for _ in range(2)], [2, 3], RampPolicy(), refiner, options=ENDLESS)
    finally:
        type(inputs).live = found
    for row, episode in enumerate(episodes):
        recorded = inputs.recorded(episode)
        np.testing.assert_array_equal(np.stack([each[row] for each in seen]), recorded[:-1])
        np.testing.assert_array_equal(recorded[:, -2:], [[0, 1] if row == 0 else [1, 0]] * len(recorded))
    with pytest.raises(ValueError, match="'count' is none of those"):
        run_wave([CountingEnv()], [2], RampPolicy(), refiner)


def test_without_texts_a_corrector_is_saved_as_ever() -> None:
    assert "texts" not in ResidualCorrector(_network(trained=False)).payload()["inputs"]


def test_a_sensor_that_the_robot_lacks_is_named() -> None:
    request = CorrectorInput(
        observation={"observation.state": np.zeros((1, 2))},
        base_chunk=np.zeros((1, 4, 2), np.float32),
        index=np.zeros(1, np.int64),
        history=History((), 0, 2),
        deterministic=True,
        generators=(),
    )
    with pytest.raises(ValueError, match=r"reads \['observation\.wrench'\]"):
        InputConfig(keys=("observation.state", "observation.wrench")).live(request)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_measurement_that_is_not_finite_is_refused_by_name(value: float) -> None:
    env = BrokenSensor()
    env.value = value
    refiner = Refiner(correct=ResidualCorrector(_network(trained=True)))
    with pytest.raises(ValueError, match=r"'observation\.wrench' holds values that are not finite"):
        run_wave([env], [3], RampPolicy(), refiner)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("refiner.json", b""),
        ("refiner.json", b'{"format": 2}'),
        ("refiner.json", b"[]"),
        ("correct.safetensors", b"\x80\x04K\x01."),  # a pickle
        ("correct.safetensors", b""),
    ],
)
def test_a_damaged_refiner_is_refused_in_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    save_refiner(tmp_path, Refiner(correct=ResidualCorrector(_network(trained=True))))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        load_refiner(tmp_path)
