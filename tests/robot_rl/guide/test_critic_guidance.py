"""Critic guidance and best of N, with a critic whose value is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from policies.policy import Policy
from policies.sampler import sample_chunk
from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.guide.critic_guidance import CriticGuidance
from robot_rl.guide.latents import Latents, LatentSource
from robot_rl.guide.values import ChunkValues
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.select.best_of import BestOf
from robot_rl.task_texts import TaskTexts
from tests.policies.tools import A, ConstantVelocity, S, flow_policy, request

ROWS = 3
KEY = "observation.state"
POLICIES = [flow_policy(), ConstantVelocity()]
IDS = ["flow", "diffusion"]


class SumCritic(ChunkCritic):
    """Worth is the sum of what is executed, in units of a centimetre; two members of one mind."""

    def forward(self, latent, executed):
        return (100 * executed.sum((1, 2)))[None].expand(2, -1)


def values(policy, kind=SumCritic):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        critic = kind(S, policy.spec.executed_steps, A, critics=2, width=8)
    critic.unit.fit(np.random.default_rng(0).normal(size=(50, A)))
    latents = Latents(LatentSource(features=False, keys=(KEY,)), torch.zeros(S), torch.ones(S), S)
    return ChunkValues(latents, critic.requires_grad_(False).eval())


def noise(policy, rows=ROWS):
    return torch.randn(rows, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(2))


def worth(policy, chunk):
    return values(policy).least(policy.spec, torch.zeros(len(chunk), S), chunk)


@pytest.mark.parametrize("gradient", ["clean", "network"])
@pytest.mark.parametrize("policy", POLICIES, ids=IDS)
def test_guided_chunks_are_worth_more_and_only_the_executed_part_is_moved(policy, gradient):
    asked = request(ROWS)
    plain = sample_chunk(policy, asked, noise(policy))
    hook = CriticGuidance(values(policy), eta=0.2, guided_steps=2, gradient=gradient)
    guided = sample_chunk(policy, asked, noise(policy), [hook])
    assert (worth(policy, guided) > worth(policy, plain)).all()
    torch.testing.assert_close(hook.info()["critic.value"], worth(policy, guided))


def test_the_last_step_moves_the_clean_chunk_by_eta():
    policy = flow_policy()
    hook = CriticGuidance(values(policy), eta=0.3, guided_steps=1)
    context = policy.encode(request(ROWS).observation)
    plain = policy.encode_action(sample_chunk(policy, request(ROWS), noise(policy)), context)
    guided = policy.encode_action(sample_chunk(policy, request(ROWS), noise(policy), [hook]), context)
    moved = guided - plain
    torch.testing.assert_close(
        moved.square().mean((1, 2)).sqrt(), torch.full((ROWS,), 0.3), rtol=1e-3, atol=0
    )
    # Every executed entry has the same slope in robot units; in x it is the width of the normalisation.
    executed, rest = moved[:, :3], moved[:, 3:]
    assert (executed > 0).all()
    torch.testing.assert_close(rest, torch.zeros_like(rest), rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", POLICIES, ids=IDS)
def test_without_eta_and_with_one_candidate_the_base_is_left_to_the_bit(policy):
    plain = sample_chunk(policy, request(ROWS), noise(policy))
    hook = CriticGuidance(values(policy), eta=0.0)
    assert torch.equal(sample_chunk(policy, request(ROWS), noise(policy), [hook]), plain)
    one = BestOf(values(policy), 1)
    generators = [np.random.default_rng(row) for row in range(ROWS)]
    candidates = one.propose(request(ROWS), policy, noise(policy), generators)
    assert torch.equal(candidates[:, 0], plain)
    assert one.select(candidates, request(ROWS)).tolist() == [0] * ROWS


class Indifferent(ChunkCritic):
    """All is worth the same."""

    def forward(self, latent, executed):
        return 0 * executed.sum((1, 2))[None].expand(2, -1)


def test_a_critic_without_a_slope_moves_nothing_and_prefers_the_base():
    policy = flow_policy()
    hook = CriticGuidance(values(policy, Indifferent), eta=0.3)
    plain = sample_chunk(policy, request(ROWS), noise(policy))
    assert torch.equal(sample_chunk(policy, request(ROWS), noise(policy), [hook]), plain)
    best = BestOf(values(policy, Indifferent), 4)
    candidates = best.propose(
        request(ROWS), policy, noise(policy), [np.random.default_rng(row) for row in range(ROWS)]
    )
    assert best.select(candidates, request(ROWS)).tolist() == [0] * ROWS


def test_the_best_of_n_is_worth_most_and_each_row_draws_for_itself():
    policy = flow_policy()
    best = BestOf(values(policy), 5)
    generators = [np.random.default_rng(row) for row in range(ROWS)]
    candidates = best.propose(request(ROWS), policy, noise(policy), generators)
    assert candidates.shape == (ROWS, 5, policy.spec.horizon, A)
    assert torch.equal(candidates[:, 0], policy.chunk(request(ROWS), noise(policy)))
    index = best.select(candidates, request(ROWS))
    worths = worth(policy, candidates.flatten(0, 1)).view(ROWS, 5)
    assert index.tolist() == worths.argmax(1).tolist()
    assert len(set(index.tolist())) > 1
    alone = BestOf(values(policy), 5).propose(
        request(ROWS).rows([1]), policy, noise(policy)[1:2], [np.random.default_rng(1)]
    )
    torch.testing.assert_close(alone[0], candidates[1], rtol=0, atol=1e-6)


def test_an_opaque_policy_is_asked_for_each_candidate():
    inner = flow_policy()

    class Opaque(Policy):
        spec = inner.spec

        def chunk(self, request, noise=None, condition=None):
            return inner.chunk(request, noise)

        def hash(self):
            return "opaque"

    def propose(policy):
        generators = [np.random.default_rng(row) for row in range(ROWS)]
        return BestOf(values(inner), 3).propose(request(ROWS), policy, noise(inner), generators)

    torch.testing.assert_close(propose(Opaque()), propose(inner), rtol=0, atol=1e-6)


def test_both_are_saved(tmp_path):
    policy = flow_policy()
    known = values(policy, ChunkCritic)
    save_refiner(
        tmp_path,
        Refiner(hooks=(CriticGuidance(known, eta=0.2, gradient="network"),), select=BestOf(known, 3)),
    )
    loaded = load_refiner(tmp_path)
    (hook,) = loaded.hooks
    assert (hook.eta, hook.guided_steps, hook.gradient, loaded.select.count) == (0.2, 3, "network", 3)
    latent, chunk = torch.randn(2, S), torch.randn(2, policy.spec.horizon, A)
    expected = known.least(policy.spec, latent, chunk)
    assert torch.equal(hook.values.least(policy.spec, latent, chunk), expected)
    assert torch.equal(loaded.select.values.least(policy.spec, latent, chunk), expected)


def test_what_does_not_fit_is_refused():
    policy = flow_policy()
    with pytest.raises(ValueError, match="eta is -1"):
        CriticGuidance(values(policy), eta=-1)
    with pytest.raises(ValueError, match="gradient is 'both'; allowed: clean, network"):
        CriticGuidance(values(policy), gradient="both")
    with pytest.raises(ValueError, match="count is 0"):
        BestOf(values(policy), 0)
    with pytest.raises(ValueError, match="executes 3 steps of a chunk, the critic knows 2"):
        values(ConstantVelocity()).least(policy.spec, torch.zeros(1, S), torch.zeros(1, 6, A))
    broken = values(policy, ChunkCritic).tensors()
    broken.pop("critic.ensemble.last")
    with pytest.raises(ValueError, match="the weights of the critic do not fit"):
        ChunkValues.from_payload(values(policy, ChunkCritic).payload(), broken)


class FreshNoise(ConstantVelocity):
    """Draws noise at every step, as DDPM does."""

    def __init__(self):
        super().__init__()
        supports = dataclasses.replace(self._spec.supports, step_noise=True)
        self._spec = dataclasses.replace(self._spec, supports=supports)

    def scheduler_step(self, index, native, prediction, alpha_bars, noise):
        return super().scheduler_step(index, native, prediction, alpha_bars, None) + 0.1 * noise


def test_a_policy_that_draws_at_every_step_proposes_too():
    policy = FreshNoise()
    generators = [np.random.default_rng(row) for row in range(ROWS)]
    candidates = BestOf(values(policy), 3).propose(request(ROWS), policy, noise(policy), generators)
    assert torch.equal(candidates[:, 0], policy.chunk(request(ROWS), noise(policy)))
    assert (candidates[:, 1:] - candidates[:, :1]).abs().amin((2, 3)).max() > 0


def test_the_observation_is_encoded_once_a_chunk():
    policy, calls = flow_policy(), []
    encode = policy.encode
    policy.encode = lambda *given: calls.append(None) or encode(*given)
    source = LatentSource(features=True, keys=(KEY,))
    size = source.raw(request(1).observation, encode(request(1).observation))[0].shape[1]
    critic = ChunkCritic(size, policy.spec.executed_steps, A, critics=2, width=8)
    critic.unit.fit(np.random.default_rng(0).normal(size=(50, A)))
    known = ChunkValues(Latents(source, torch.zeros(size), torch.ones(size), size), critic)
    sample_chunk(policy, request(ROWS), noise(policy), [CriticGuidance(known)])
    assert len(calls) == 1
    BestOf(known, 4).propose(
        request(ROWS), policy, noise(policy), [np.random.default_rng(row) for row in range(ROWS)]
    )
    assert len(calls) == 2


class OwnTaskCritic(ChunkCritic):
    """Worth is the sum of what is executed on the second task, and its opposite on the first."""

    def forward(self, latent, executed):
        sign = latent[:, -1] - latent[:, -2]
        return (100 * sign * executed.sum((1, 2)))[None].expand(2, -1)


def test_a_critic_is_told_the_task_of_each_row():
    policy = flow_policy()
    plain = values(policy)
    known = ChunkValues(plain.latents, OwnTaskCritic(S + 2, 3, A, critics=2, width=8), TaskTexts(("a", "b")))
    asked = request(ROWS)
    asked = dataclasses.replace(asked, observation={**asked.observation, "task": ["b", "a", "b"]})
    hook, selector = CriticGuidance(known, eta=0.2, guided_steps=2), BestOf(known, 4)
    assert hook.keys == selector.keys == ("task",)
    moved = sample_chunk(policy, asked, noise(policy), [hook]) - sample_chunk(policy, asked, noise(policy))
    assert torch.equal(moved.sum((1, 2)) > 0, torch.tensor([True, False, True]))
    generators = [np.random.default_rng(row) for row in range(ROWS)]
    candidates = selector.propose(asked, policy, noise(policy), generators)
    worth_each = candidates[:, :, :3].sum((2, 3)) * torch.tensor([1.0, -1.0, 1.0])[:, None]
    assert torch.equal(selector.select(candidates, asked), worth_each.argmax(1))
    again = ChunkValues.from_payload(known.payload(), known.tensors())
    assert again.texts == known.texts
    assert "texts" not in plain.payload()
