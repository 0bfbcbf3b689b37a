"""The curves of a refinement's critics: worked out anew, and refused where they would mean nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from robot_rl.control import run_wave
from robot_rl.correct.exploration import CorrelatedNoise
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.correct.residual_critic import ResidualCritic
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from robot_rl.critics.curves import open_critic
from robot_rl.refiner import Refiner
from robot_rl.runs import RunDirectory, RunError
from tests.robot_rl.scripted import FEATURES, CountingEnv, RampPolicy

INPUTS = InputConfig(keys=("observation.state",), history_keys=("observation.wrench",), offsets=(1, 2))
UNIT = np.array([0.6, 0.3])


@pytest.fixture(scope="module")
def episode():
    noise = Refiner(correct=CorrelatedNoise(np.array([0.3, 0.3])))
    return run_wave([CountingEnv()], [3], RampPolicy(), noise, deterministic=False)[0]


@pytest.fixture
def run(tmp_path):
    """A run directory with a checkpoint as a refinement writes it."""
    width = INPUTS.width(FEATURES, 2)
    torch.manual_seed(0)
    network = ResidualNetwork(
        ResidualConfig(INPUTS, width=16), np.full(width, 0.1), np.full(width, 2.0), (0.3, 0.3), UNIT
    )
    learner = ResidualLearner(
        network, ResidualLearnerConfig(critics=3, width=8), executed_steps=3, capacity=50
    )
    with RunDirectory.create(tmp_path / "run", {}, kind="refine") as made:
        details = ResidualCorrector(network).payload()
        with made.checkpoint(40, network=details) as folder:
            save_file(learner.state(), folder / "learner.safetensors")
            save_file(dict(network.state_dict()), folder / "actor.safetensors")
    return made.path, learner


def test_values_are_those_of_the_learners_critics(run, episode):
    path, learner = run
    curves = open_critic(path).value_curves(episode)
    x = (INPUTS.recorded(episode)[:-1] - np.float32(0.1)) / np.float32(2.0)
    x = torch.from_numpy(x).clamp(-5, 5)
    for name, action in (("executed", episode.action), ("base", episode.action_base)):
        with torch.no_grad():
            wanted = learner.critic(x, torch.from_numpy((action / UNIT).astype(np.float32))).numpy()
        for k in range(3):
            np.testing.assert_allclose(curves[f"{name}/critic{k}"], wanted[k], atol=1e-6)
        np.testing.assert_allclose(curves[f"{name}/min"], wanted.min(0), atol=1e-6)
        np.testing.assert_allclose(curves[f"{name}/mean"], wanted.mean(0), atol=1e-6)


def test_a_measurement_that_is_not_finite_has_no_value(run, episode):
    state = episode.observations["observation.state"].copy()
    state[2, 0] = np.inf
    odd = replace(episode, observations={**episode.observations, "observation.state": state})
    curves = open_critic(run[0]).value_curves(odd)
    for curve in curves.values():
        np.testing.assert_array_equal(np.isnan(curve), np.arange(len(episode)) == 2)


def test_an_episode_that_does_not_fit_is_refused(run, episode):
    critic = open_critic(run[0])
    assert isinstance(critic, ResidualCritic)
    seen = dict(episode.observations)
    blind = {"observation.state": seen["observation.state"]}
    with pytest.raises(ValueError, match=r"reads \['observation.wrench'\]"):
        critic.value_curves(replace(episode, observations=blind))
    wide = seen | {"observation.state": np.repeat(seen["observation.state"], 2, axis=1)}
    with pytest.raises(ValueError, match=r"gives 10 inputs, the critic reads 8; .*'observation.state': 4"):
        critic.value_curves(replace(episode, observations=wide))
    with pytest.raises(ValueError, match="steps without a base action"):
        critic.value_curves(replace(episode, action_base=np.full_like(episode.action, np.nan)))
    actions = ("action", "action_base", "action_policy", "action_intended")
    narrow = {name: getattr(episode, name)[:, :1] for name in actions}
    with pytest.raises(ValueError, match="actions of 1 numbers, the critic reads 2"):
        critic.value_curves(replace(episode, chunks=(), **narrow))


def test_a_run_without_critics_or_with_damaged_ones_is_refused(run, tmp_path):
    with RunDirectory.create(tmp_path / "young", {}, kind="refine"):
        pass
    with pytest.raises(ValueError, match="no checkpoint, and with it no critic"):
        open_critic(tmp_path / "young")
    with RunDirectory.create(tmp_path / "other", {}, kind="refine") as other:
        tensors = {"critic.second": torch.zeros(2, 8, 8)}
        with other.checkpoint(40, network={}) as folder:
            save_file(tensors, folder / "actor.safetensors")
    with pytest.raises(ValueError, match="does not hold the critics of a refinement"):
        open_critic(other.path)
    file = next((run[0] / "checkpoints").rglob("learner.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RunError, match="was changed since it was saved"):
        open_critic(run[0])
