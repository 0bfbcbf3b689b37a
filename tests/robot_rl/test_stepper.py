"""Policy and refiner outside the control loop: the same numbers, and what is refused."""

import numpy as np
import pytest
import torch

from policies.hooks import DenoiseHook
from policies.noise import draw_noise
from policies.request import ChunkRequest
from robot_rl.control import ControlLoop, LoopConfig, run_wave
from robot_rl.correct.template_corrector import LinearCorrector
from robot_rl.plans import Previous
from robot_rl.refiner import Refiner
from robot_rl.select.selector import Selector
from robot_rl.stepper import Stepper
from tests.robot_rl.scripted import RampPolicy, Shift
from tests.robot_rl.toy import Toy, save_toy_policy


class Halve(DenoiseHook):
    """Takes half of the gradient of the chunk's square away, so that it needs a graph."""

    def needs_grad(self, index):
        return True

    def step(self, state):
        (slope,) = torch.autograd.grad(state.clean.square().sum(), state.leaf)
        return state.x, state.velocity + 0.5 * slope


class Second(Selector):
    """Proposes the base's chunk and one of fresh noise, and takes the second."""

    def propose(self, request, policy, noise, generators):
        other = draw_noise(policy.spec, generators)
        return torch.stack([policy.chunk(request, noise), policy.chunk(request, other)], 1)

    def select(self, candidates, request):
        return torch.ones(len(candidates), dtype=torch.int64)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    from policies.loading import load

    return load(save_toy_policy(tmp_path_factory.mktemp("toy")))


def refiners():
    correct = LinearCorrector("observation.state", [[0.5, 0.0], [0.0, 0.5]], [0.1, 0.1])
    return {
        "bare": None,
        "corrector": Refiner(correct=correct),
        "hook": Refiner(hooks=(Halve(),)),
        "selector and corrector": Refiner(correct=correct, select=Second()),
    }


def replayed(stepper, episodes, length):
    """Hand the observations of recorded episodes to a stepper; a row that has ended repeats its last."""
    acted = []
    for step in range(length):
        observation = {
            key: np.stack([e.observations[key][min(step, len(e))] for e in episodes])
            for key in episodes[0].observations
        }
        acted.append(stepper.act(observation))
    return np.stack(acted, 1)


@pytest.mark.parametrize("name", refiners())
def test_the_actions_are_those_of_the_loop_on_the_same_seeds(policy, name):
    loop = ControlLoop([Toy() for _ in range(3)], policy, refiners()[name], LoopConfig(stream=2))
    stepper = Stepper(policy, refiners()[name], rows=3, seed=5, stream=2)
    for first in (5, 8):  # the seeds go on by themselves
        episodes = loop.run(range(first, first + 3))
        stepper.begin([Toy.task_text] * 3)
        length = max(len(episode) for episode in episodes)
        for acted, episode in zip(replayed(stepper, episodes, length), episodes, strict=True):
            np.testing.assert_array_equal(acted[: len(episode)], episode.action)


def test_seeds_may_be_given_and_change_the_noise(policy):
    stepper = Stepper(policy)
    state = {"observation.state": np.zeros((1, 2), np.float32)}
    found = []
    for seeds in ([3], [4], [3]):
        stepper.begin(seeds=seeds)
        found.append(stepper.act(state))
    assert np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])


def test_the_history_of_a_corrector_knows_what_was_executed_instead():
    shift = Shift(0.25)
    stepper = Stepper(RampPolicy(), Refiner(correct=shift))
    stepper.begin()
    seen = {
        "observation.state": np.zeros((1, 2), np.float32),
        "observation.wrench": np.ones((1, 1), np.float32),
    }
    stepper.act(seen)
    stepper.act(seen)
    stepper.act(seen, executed=np.full((1, 2), 0.5))
    # Base actions are 0.1, 0.11; the correction was 0.25, then what somebody else did less the base.
    np.testing.assert_allclose([past for _, past in shift.past], [0.0, 0.25, 0.39], atol=1e-6)


def test_after_a_takeover_a_row_plans_afresh():
    policy = RampPolicy(horizon=4, executed=3)
    stepper = Stepper(policy, rows=2)
    stepper.begin()
    seen = {"observation.state": np.zeros((2, 2), np.float32)}
    stepper.act(seen)
    acted = stepper.act(seen, returned=[False, True])
    np.testing.assert_allclose(acted[:, 0], [0.11, 0.2], atol=1e-6)


def test_actions_stay_within_the_limits():
    stepper = Stepper(RampPolicy(), Refiner(correct=Shift(5.0)))
    stepper.begin()
    seen = {
        "observation.state": np.zeros((1, 2), np.float32),
        "observation.wrench": np.ones((1, 1), np.float32),
    }
    assert stepper.act(seen).tolist() == [[1.0, 1.0]]


def test_a_chunk_is_the_loops_first_and_later_ones_know_the_previous(policy):
    (episode,) = run_wave([Toy()], [7], policy)
    stepper = Stepper(policy, seed=7)
    stepper.begin()
    seen = {"observation.state": episode.observations["observation.state"][:1]}
    np.testing.assert_array_equal(stepper.chunk([seen])[0], episode.chunks[0].actions)
    ramp = RampPolicy()
    stepper = Stepper(ramp)
    stepper.begin()
    stepper.chunk([seen], previous=Previous(np.ones((1, 4, 2), np.float32), np.array([2])), delay=1)
    request: ChunkRequest = ramp.calls[0]
    assert (request.consumed.tolist(), request.delay.tolist()) == ([2], [1])


def test_what_cannot_be_done_is_refused(policy):
    seen = {"observation.state": np.zeros((1, 2), np.float32)}
    with pytest.raises(RuntimeError, match="begin"):
        Stepper(policy).act(seen)
    with pytest.raises(ValueError, match="made for the base"):
        Stepper(policy, Refiner(base_hash="0" * 64))
    with pytest.raises(ValueError, match="rows is 0"):
        Stepper(policy, rows=0)
    stepper = Stepper(policy, Refiner(correct=Shift(0.1)), rows=2)
    with pytest.raises(ValueError, match="1 tasks for 2 rows"):
        stepper.begin(["push"])
    with pytest.raises(ValueError, match="3 seeds for 2 rows"):
        stepper.begin(seeds=[1, 2, 3])
    stepper.begin()
    with pytest.raises(ValueError, match=r"'observation.state': 1\} rows; there are 2"):
        stepper.act(seen)
    with pytest.raises(ValueError, match="corrects each control step"):
        stepper.chunk([seen])


def test_a_student_acts_in_the_bases_place(policy):
    from robot_rl.student import Student

    other = policy.student("copy")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    refiner = Refiner(student=Student(other))
    seen = {"observation.state": np.full((1, 2), 0.3, np.float32)}
    acted = []
    for stepper in (Stepper(policy, refiner), Stepper(policy), Stepper(other)):
        stepper.begin()
        acted.append(stepper.chunk([seen]))
    assert np.array_equal(acted[0], acted[2])
    assert not np.array_equal(acted[0], acted[1])
