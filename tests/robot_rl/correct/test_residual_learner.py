"""The learner: exact state, the critic scores executed actions, and it learns what is there to learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.control import run_wave
from robot_rl.correct.exploration import CorrelatedNoise
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from robot_rl.refiner import Refiner
from tests.robot_rl.scripted import FEATURES, CountingEnv, RampPolicy

INPUTS = InputConfig(keys=("observation.state",), offsets=(1,))
SMALL = ResidualLearnerConfig(critics=2, width=16, batch=32, gamma=0.9, n_step=2, seed=3)


@pytest.fixture(scope="module")
def episodes():
    refiner = Refiner(correct=CorrelatedNoise(np.array([0.3, 0.3])))
    found = []
    for first in range(0, 196, 49):
        seeds = list(range(first, first + 49, 7))  # all with the goal at 1
        found += run_wave([CountingEnv() for _ in seeds], seeds, RampPolicy(), refiner, deterministic=False)
    return found


def _learner(config: ResidualLearnerConfig = SMALL, device: str = "cpu") -> ResidualLearner:
    torch.manual_seed(0)
    width = INPUTS.width(FEATURES, 2)
    network = ResidualNetwork(
        ResidualConfig(INPUTS, width=16), np.zeros(width), np.ones(width), (0.3, 0.3), (0.6, 0.6)
    )
    return ResidualLearner(network, config, executed_steps=3, capacity=2000, device=device)


def test_goes_on_bit_equal_from_a_saved_state(episodes) -> None:
    one = _learner()
    one.add(episodes)
    one.update(7)
    other = _learner()
    other.add(episodes)
    other.load_state(one.state())
    one.update(5)
    other.update(5)
    for (name, a), b in zip(one.state().items(), other.state().values(), strict=True):
        assert torch.equal(a, b), name


def test_updates_and_its_state_work_on_every_device(episodes, device: str) -> None:
    learner = _learner(device=device)
    learner.add(episodes)
    found = learner.update(4)
    assert all(np.isfinite(value) for value in found.values())
    other = _learner(device=device)
    other.add(episodes)
    other.load_state(learner.state())
    assert torch.equal(other.snapshot()["head.weight"], learner.snapshot()["head.weight"])
    assert learner.snapshot()["head.weight"].device.type == device


def test_the_state_of_another_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="another configuration"):
        _learner().load_state({"updates": torch.tensor(3)})


def test_the_snapshot_is_a_copy(episodes) -> None:
    learner = _learner()
    learner.add(episodes)
    before = learner.snapshot()
    kept = {key: value.clone() for key, value in before.items()}
    learner.update(3)
    assert all(torch.equal(before[key], kept[key]) for key in kept)
    assert not torch.equal(before["head.weight"], learner.snapshot()["head.weight"])


def test_the_critic_is_trained_on_what_was_executed_not_on_the_residual(episodes) -> None:
    """Two episodes with equal residuals and different base actions must not look alike to the critic."""
    learner = _learner()
    learner.add(episodes)
    batch = learner._replay.sample(64, np.random.default_rng(0))
    executed = np.concatenate([episode.action for episode in episodes]).astype(np.float32)
    assert all((executed == row).all(1).any() for row in batch.action)


def test_learns_to_push_towards_success(episodes) -> None:
    """The sooner the first entry has grown to 1, the less the reward is discounted."""
    learner = _learner(
        ResidualLearnerConfig(critics=2, width=32, batch=64, gamma=0.8, n_step=3, learning_rate=3e-3)
    )
    learner.add(episodes)
    learner.update(400)
    seeds = [0]
    envs = [CountingEnv() for _ in seeds]
    refined = run_wave(envs, seeds, RampPolicy(), Refiner(correct=ResidualCorrector(learner.actor)))
    base = run_wave(envs, seeds, RampPolicy())
    assert sum(map(len, refined)) < sum(map(len, base))
    assert refined[0].success


def test_the_average_that_acts_follows_the_actor_by_its_rate(episodes) -> None:
    learner = _learner(replace(SMALL, actor_every=1, average_rate=0.25))
    learner.add(episodes)
    before = learner.snapshot()["head.bias"]
    learner.update(1)
    expected = before + 0.25 * (learner.actor.head.bias.detach() - before)
    torch.testing.assert_close(learner.snapshot()["head.bias"], expected)
    assert not torch.equal(learner.actor.head.bias, expected)


def test_corrections_that_the_critic_does_not_care_for_fade(episodes) -> None:
    """A critic of zeros: only the penalty is left to tell large corrections from small ones."""
    sizes = []
    for penalty in (0.0, 1.0):
        learner = _learner(replace(SMALL, residual_penalty=penalty, temperature=1e-9, learning_rate=1e-2))
        learner.add(episodes)
        with torch.no_grad():
            learner.critic.last.zero_()
            learner.actor.head.bias.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0]))
        batch = learner._tensors(learner._replay.sample(64, np.random.default_rng(0)))
        for _ in range(100):
            learner._update_actor(batch[0], batch[1])
        sizes.append(float(torch.tanh(learner.actor(batch[0], batch[1])[0]).abs().mean().detach()))
    assert sizes[1] < 0.5 * sizes[0]


def test_targets_stay_within_the_range_of_returns(episodes) -> None:
    learner = _learner()
    learner.add(episodes)
    with torch.no_grad():
        learner.target.last_bias.fill_(50.0)
    assert learner.update(1)["target"] <= 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"subset": 3, "critics": 2},
        {"gamma": 1.0},
        {"n_step": 0},
        {"average_rate": 0.0},
        {"residual_penalty": -0.1},
        {"learning_rate": 0.0},
        {"temperature": float("nan")},
        {"return_range": (1.0, 0.0)},
    ],
)
def test_senseless_settings_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ResidualLearnerConfig(**wrong)
