import dataclasses

import numpy as np
import pytest

from robot_rl.control import run_wave
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualNetwork
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from tests.robot_rl.scripted import FEATURES, CountingEnv, RampPolicy

INPUTS = InputConfig(keys=("observation.state",), offsets=(1,))
WAVE = 6
CONFIG = ResidualLearnerConfig(critics=2, width=16, batch=32, n_step=1, seed=3, shuffle_rewards=WAVE)


@pytest.fixture(scope="module")
def episodes():
    """Three waves; the first two rows of each reach their goal."""
    seeds = [7, 14, 6, 13, 20, 27]
    waves = [
        run_wave([CountingEnv() for _ in seeds], [seed + 49 * k for seed in seeds], RampPolicy())
        for k in range(3)
    ]
    assert [episode.success for episode in waves[0]] == [True, True, False, False, False, False]
    return [episode for wave in waves for episode in wave]


def learner(config=CONFIG):
    width = INPUTS.width(FEATURES, 2)
    network = ResidualNetwork(
        ResidualConfig(INPUTS, width=16), np.zeros(width), np.ones(width), (0.3, 0.3), (0.6, 0.6)
    )
    return ResidualLearner(network, config, executed_steps=3, capacity=2000)


def held(one):
    """Every transition of a learner's replay, in the order they came."""
    return one._replay.get(np.arange(len(one)))


def rewards_by_wave(one, episodes):
    """Rewards as the learner holds them, one array per wave."""
    lengths = np.array([len(episode) for episode in episodes]).reshape(-1, WAVE).sum(1)
    return np.split(held(one).reward, np.cumsum(lengths)[:-1])


def test_every_wave_keeps_its_rewards_and_not_their_places(episodes):
    plain, shuffled = learner(dataclasses.replace(CONFIG, shuffle_rewards=0)), learner()
    plain.add(episodes)
    shuffled.add(episodes)
    for before, after in zip(
        rewards_by_wave(plain, episodes), rewards_by_wave(shuffled, episodes), strict=True
    ):
        assert before.sum() == after.sum() == 2
        assert (before != after).any()
    assert (episodes[0].reward[-1], episodes[5].reward[-1]) == (1.0, 0.0), "the record was changed"


def test_success_does_not_show_by_ending_the_task_either(episodes):
    """A success ends early; with its reward gone, the discount of its last step would still give it away."""
    plain, shuffled = learner(dataclasses.replace(CONFIG, shuffle_rewards=0)), learner()
    plain.add(episodes)
    shuffled.add(episodes)
    assert (held(plain).discount == 0).sum() == 6
    assert (held(shuffled).discount > 0).all()


def test_a_resumed_learner_that_gets_all_at_once_shuffles_alike(episodes):
    one, other = learner(), learner()
    for first in range(0, len(episodes), WAVE):
        one.add(episodes[first : first + WAVE])
        one.update(2)
    other.add(episodes)
    np.testing.assert_array_equal(held(one).reward, held(other).reward)


def test_another_seed_shuffles_differently(episodes):
    one, other = learner(), learner(dataclasses.replace(CONFIG, seed=4))
    one.add(episodes)
    other.add(episodes)
    assert (held(one).reward != held(other).reward).any()


def test_part_of_a_wave_is_refused(episodes):
    with pytest.raises(ValueError, match="5 episodes are no whole number of waves of 6"):
        learner().add(episodes[:5])


@pytest.mark.parametrize("size", [-1, 1])
def test_a_wave_that_cannot_be_shuffled_is_refused(size):
    with pytest.raises(ValueError, match="shuffle_rewards"):
        ResidualLearnerConfig(shuffle_rewards=size)
