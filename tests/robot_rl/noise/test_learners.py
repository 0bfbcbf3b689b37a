"""Both learners: exact state, what they learn on a base whose action is its noise, and their controls."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.request import ChunkRequest
from robot_rl.control import run_wave
from robot_rl.correct.inputs import InputConfig
from robot_rl.noise.aliased_learner import SEEN, AliasedLearner
from robot_rl.noise.learner import INPUT, SacLearner
from robot_rl.noise.learner_config import NoiseLearnerConfig
from robot_rl.noise.network import NoiseNetwork, SteeringConfig
from robot_rl.noise.space import NoiseSpaceConfig
from robot_rl.noise.steering import SteeredNoise
from robot_rl.refiner import Refiner
from tests.robot_rl.noise.pusher import STATE, Pusher
from tests.robot_rl.scripted import CountingEnv

INPUTS = InputConfig(keys=(STATE,), offsets=(), corrections=False)
SMALL = NoiseLearnerConfig(width=32, batch=64, seed=3, learning_rate=3e-3, target_rate=0.05, average_rate=0.1)
VARIANTS = ["sac", "na"]


@pytest.fixture(scope="module")
def episodes():
    """240 episodes of the base, all with the goal at 1; it reaches it now and then."""
    envs = [CountingEnv() for _ in range(40)]
    waves = [range(7 * first, 7 * (first + 40), 7) for first in range(0, 240, 40)]
    return [episode for seeds in waves for episode in run_wave(envs, seeds, Pusher())]


def learner(variant, config=SMALL, device="cpu", **space):
    shape = SteeringConfig((STATE,), 4, 3, 2, NoiseSpaceConfig(**space), hidden=config.width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = NoiseNetwork(shape, np.zeros(2), np.ones(2))
    common = {"executed_steps": 3, "capacity": 10_000, "device": device}
    if variant == "sac":
        return SacLearner(network, INPUTS, config, **common)
    return AliasedLearner(network, INPUTS, config, base=Pusher, **common)


def learned(one):
    shape = one.actor.config
    network = NoiseNetwork(shape, np.zeros(2), np.ones(2))
    network.load_state_dict(one.snapshot())
    return SteeredNoise(network)


@pytest.mark.parametrize("variant", VARIANTS)
def test_goes_on_bit_equal_from_a_saved_state(episodes, variant):
    one, other = learner(variant), learner(variant)
    one.add(episodes[:20])
    one.add(episodes[20:40])
    one.update(7)
    other.add(episodes[:40])
    other.load_state(one.state())
    one.update(5)
    other.update(5)
    for (name, a), b in zip(one.state().items(), other.state().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_updates_work_on_every_device(episodes, device, variant):
    one = learner(variant, device=device)
    one.add(episodes[:20])
    assert all(np.isfinite(value) for value in one.update(4).values())
    assert one.snapshot()["head.weight"].device.type == device


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_learns_to_push_to_the_goal(episodes, variant):
    one = learner(variant)
    one.add(episodes)
    one.update(250)
    envs, seeds = [CountingEnv() for _ in range(40)], range(7_000, 7_280, 7)
    before, after = (
        np.mean([episode.success for episode in run_wave(envs, seeds, Pusher(), refiner)])
        for refiner in (None, Refiner(noise=learned(one)))
    )
    assert before < 0.3
    assert after > before + 0.4
    x = torch.zeros(1, 2)
    shift = one.actor.steer(x, torch.zeros(1, 4, 3), deterministic=True).noise
    assert (shift[0, :3, 0] > 0.5).all(), "executed steps push"
    assert (shift[..., 2] == 0).all(), "padding"


def worth_of_pushing(one):
    """What the judge says of pushing forward rather than back at the start."""
    forward = torch.zeros(1, 4, 3)
    forward[:, :3, 0] = 1.0
    with torch.no_grad():
        ahead, back = (one._judge()(torch.zeros(1, 2), one.actor.critic_view(w)) for w in (forward, -forward))
    return float((ahead - back).mean())


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_shuffled_rewards_there_is_nothing_to_learn(episodes, variant):
    plain, shuffled = learner(variant), learner(variant, replace(SMALL, shuffle_rewards=40))
    for one in (plain, shuffled):
        one.add(episodes)
        one.update(150)
    assert worth_of_pushing(plain) > 0.05
    assert abs(worth_of_pushing(shuffled)) < worth_of_pushing(plain) / 2


def test_the_critic_of_noise_says_what_the_critic_of_chunks_says(episodes):
    one = learner("na", replace(SMALL, noise_updates=4))
    one.add(episodes)
    one.update(150)
    batch = one._replay.sample(256, np.random.default_rng(0))
    x, noise = one._normal(batch.observations[INPUT]), one._draw(256)
    seen = ChunkRequest({STATE: torch.from_numpy(batch.observations[SEEN + STATE])})
    with torch.no_grad():
        by_chunk = one.critic(x, one._unit(Pusher().chunk(seen, noise)[:, :3])).amin(0)
        by_noise = one.noise_critic(x, one.actor.critic_view(noise)).amin(0)
    assert np.corrcoef(by_chunk, by_noise)[0, 1] > 0.6


def test_sac_never_asks_the_base(episodes, monkeypatch):
    monkeypatch.setattr(Pusher, "chunk", None)
    one = learner("sac")
    one.add(episodes[:10])
    one.update(2)


def test_the_temperature_falls_while_there_is_more_chance_than_wanted_and_rises_below(episodes):
    for wanted, falls in ((-1.0, True), (0.2, False)):
        one = learner("sac", replace(SMALL, target_entropy=wanted))
        one.add(episodes[:40])
        one.update(20)
        assert (one._temperature < SMALL.temperature) == falls


def test_entropy_is_in_the_target_value_only_when_asked(episodes):
    targets = []
    for asked in (True, False):
        wide = replace(SMALL, temperature=1.0, entropy_in_target=asked, return_range=(-99, 99))
        narrowed = learner("sac", wide)
        narrowed.add(episodes)
        narrowed.actor.head.bias.data[8:] = -1.0  # less chance than the base has
        targets.append(narrowed.update(1)["target"])
    assert targets[0] < targets[1] - 1


class Reader(Pusher):
    """Goes the other way when told to come back."""

    @property
    def spec(self):
        return replace(super().spec, reads_task=True)

    def chunk(self, request, noise=None, condition=None):
        sign = torch.tensor([-1.0 if text == "come back" else 1.0 for text in request.observation["task"]])
        return sign[:, None, None] * super().chunk(request, noise)


def test_the_base_is_asked_with_the_text_that_each_row_was_told(episodes):
    told = [replace(each, task=("go", "come back")[i % 2]) for i, each in enumerate(episodes[:20])]
    network = NoiseNetwork(SteeringConfig((STATE,), 4, 3, 2, NoiseSpaceConfig()), np.zeros(4), np.ones(4))
    one = AliasedLearner(
        network,
        replace(INPUTS, texts=("come back", "go")),
        SMALL,
        base=Reader,
        executed_steps=3,
        capacity=9_000,
    )
    one.add(told)
    one.update(2)
    batch = one._replay.sample(64, np.random.default_rng(0))
    back = batch.observations[INPUT][:, 2] == 1
    assert 0 < back.sum() < 64
    np.testing.assert_array_equal(batch.observations[INPUT][:, 2:].sum(1), 1)
    noise = torch.ones(64, 4, 3)
    along = one._chunk(batch.observations, noise)[:, 0]
    assert torch.equal(along < 0, torch.from_numpy(back))


def test_a_base_that_reads_the_task_is_refused_without_texts():
    with pytest.raises(ValueError, match="give the texts of its tasks"):
        AliasedLearner(learner("sac").actor, INPUTS, SMALL, base=Reader, executed_steps=3, capacity=10)
