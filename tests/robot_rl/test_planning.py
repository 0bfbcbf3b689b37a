"""Noise policies, hooks and selectors in the control loop, on a policy whose every number is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import sim
from policies.checkpoint import load
from policies.hooks import DenoiseHook
from policies.noise import draw_noise
from policies.policy import PolicyError, Supports
from robot_rl.control import run_wave
from robot_rl.noise.policy import NoisePolicy
from robot_rl.planning import keys_read, plan_chunks
from robot_rl.refiner import Refiner
from robot_rl.select.selector import Selector
from robot_rl.waves import summarise
from tests.robot_rl.scripted import CountingEnv, RampPolicy
from tests.robot_rl.toy import TOY, save_toy_policy

ENDLESS = {"endless": True}


class Ones(NoisePolicy):
    """Starts from ones, whatever was drawn."""

    def propose(self, request, noise, *, deterministic):
        assert deterministic
        return torch.ones_like(noise)


class LeastSum(Selector):
    """Of the base's own chunk and two more it takes the one with the least sum."""

    def propose(self, request, policy, noise, generators):
        more = [draw_noise(policy.spec, generators) for _ in range(2)]
        return torch.stack([policy.chunk(request, each) for each in (noise, *more)], dim=1)

    def select(self, candidates, request):
        return candidates.sum((2, 3)).argmin(1)


class Diary(DenoiseHook):
    """Writes down when it is called, and changes nothing."""

    def __init__(self):
        self.calls = []

    def begin_episode(self, rows):
        self.calls.append(("episode", list(rows)))

    def begin_chunk(self, request, policy, context):
        self.calls.append(("chunk", list(request.episode_ids)))


def test_the_chosen_noise_is_denoised_and_recorded():
    (episode,) = run_wave(
        [CountingEnv()], [0], RampPolicy(noise_share=0.1), Refiner(noise=Ones()), options=ENDLESS
    )
    np.testing.assert_allclose(episode.action[:3, 0], [0.2, 0.21, 0.22], atol=1e-6)
    assert (episode.chunks[0].noise == 1).all()


def test_a_gain_of_0_leaves_the_bare_base_whatever_the_refiner_has():
    everything = Refiner(noise=Ones(), select=LeastSum())
    bare, idle = (
        run_wave([CountingEnv()], [4], RampPolicy(noise_share=0.1), refiner, gain=0.0, options=ENDLESS)[0]
        for refiner in (None, everything)
    )
    assert bare.action.tobytes() == idle.action.tobytes()
    assert idle.chunks[0].candidates is None


def test_a_noise_policy_on_a_base_that_takes_no_noise_is_refused():
    policy = RampPolicy()
    policy._spec = replace(policy.spec, supports=Supports())
    with pytest.raises(PolicyError, match="the base must take it; 'ramp' does not"):
        run_wave([CountingEnv()], [0], policy, Refiner(noise=Ones()), options=ENDLESS)


def test_the_selected_candidate_is_executed_and_all_are_recorded():
    envs = [CountingEnv() for _ in range(3)]
    episodes = run_wave(
        envs, [4, 5, 6], RampPolicy(noise_share=0.1), Refiner(select=LeastSum()), options=ENDLESS
    )
    for episode in episodes:
        first = episode.chunks[0]
        assert first.candidates.shape == (3, 4, 2)
        assert first.index == first.candidates.sum((1, 2)).argmin()
        np.testing.assert_array_equal(first.actions, first.candidates[first.index])
        np.testing.assert_array_equal(episode.action_base[:3].astype(np.float32), first.actions[:3])


class Says(DenoiseHook):
    """Reports which chunk this is, and an activity of 0 and 1 in turn."""

    def __init__(self):
        self.chunks = 0

    def end_chunk(self, chunk):
        self.chunks += 1

    def info(self):
        return {"says.chunk": torch.tensor([self.chunks]), "says.active": torch.tensor([self.chunks % 2])}


def test_what_a_hook_reports_is_recorded_with_each_step_of_its_chunk(tmp_path):
    policy = load(save_toy_policy(tmp_path))
    (episode,) = run_wave([sim.make(TOY, hopeless_seeds=99)], [3], policy, Refiner(hooks=[Says()]))
    assert len(episode) == 12
    np.testing.assert_array_equal(episode.extra["says.chunk"], np.repeat(np.arange(1, 7), 2))
    assert summarise(episode).facts["says.active_share"] == 0.5
    with pytest.raises(ValueError, match=r"two hooks report says\.active, says\.chunk"):
        run_wave([sim.make(TOY)], [3], policy, Refiner(hooks=[Says(), Says()]))


def test_rows_that_select_do_not_depend_on_their_neighbours():
    """A chunk of RampPolicy grows with the number of calls, three for each plan for any number of rows."""
    refiner = Refiner(select=LeastSum())
    alone = run_wave([CountingEnv()], [5], RampPolicy(noise_share=0.1), refiner, options=ENDLESS)[0]
    envs = [CountingEnv() for _ in range(3)]
    among = run_wave(envs, [4, 5, 6], RampPolicy(noise_share=0.1), refiner, options=ENDLESS)[1]
    np.testing.assert_array_equal(alone.action, among.action)


def test_hooks_hear_of_each_episode_before_its_first_chunk_and_change_nothing_by_listening(tmp_path):
    policy, hook = load(save_toy_policy(tmp_path)), Diary()
    envs = [CountingEnv() for _ in range(2)]
    plain = run_wave(envs, [3, 4], policy, options=ENDLESS)
    heard = run_wave(envs, [3, 4], policy, Refiner(hooks=[hook]), options=ENDLESS)
    names = [episode.id for episode in heard]
    assert hook.calls[:2] == [("episode", names), ("chunk", names)]
    assert [kind for kind, _ in hook.calls].count("episode") == 1
    for a, b in zip(plain, heard, strict=True):
        np.testing.assert_array_equal(a.action, b.action)


def test_hooks_on_a_policy_whose_denoising_is_closed_are_refused():
    with pytest.raises(PolicyError, match="guidance by hooks"):
        run_wave([CountingEnv()], [0], RampPolicy(), Refiner(hooks=[Diary()]))


@pytest.mark.parametrize(("part", "reads"), [("noise", Ones), ("select", LeastSum), ("hooks", Diary)])
def test_a_part_is_told_the_task_where_the_base_is_not(part, reads, tmp_path):
    policy = load(save_toy_policy(tmp_path / "policy"))
    made = reads()
    made.keys = ("task",)
    refiner = Refiner(**{part: (made,) if part == "hooks" else made})
    assert keys_read(policy.spec, Refiner()) == ["observation.state"]
    assert keys_read(policy.spec, refiner) == ["observation.state", "task"]
    observation = {"observation.state": np.zeros((2, 2), np.float32)}
    told = []
    encode = policy.encode
    policy.encode = lambda seen, *more: told.append(seen.get("task")) or encode(seen, *more)
    plan_chunks(
        policy, refiner, past=[observation], tasks=["left", "right"], previous=None, delay=0,
        generators=[np.random.default_rng(0), np.random.default_rng(1)], episode_ids=["a", "b"],
        deterministic=True,
    )  # fmt: skip
    assert told
    assert all(each == ["left", "right"] for each in told)
