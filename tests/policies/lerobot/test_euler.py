"""SmolVLA, pi0, pi0.5 and GR00T through our sampler: what they have in common."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
import torch
from lerobot.policies.common.flow_matching import euler_integrate
from torch import Tensor

from policies.checkpoint import CheckpointError
from policies.conformance import check_policy
from policies.context import TensorContext
from policies.hooks import DenoiseHook, DenoiseState
from policies.parity import check_parity
from policies.policy import Evaluation, PolicyError
from policies.request import ChunkRequest
from policies.sampler import sample_chunk
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.double import DoubleMode, directional_gap
from tests.policies.lerobot.tiny_pi import small_sizes
from tests.policies.lerobot.tiny_vla import KINDS, make_vla, noise, observation, open_vla, save_vla

if TYPE_CHECKING:
    from policies.lerobot.base import LeRobotChunkPolicy

A = tiny.ACTION_SIZE
_ROWS_APART = 1e-5
"""Rows in different batches go through matrix products of other sizes, whose sums run in another order."""


@pytest.fixture(scope="module", params=KINDS)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LeRobotChunkPolicy:
    return make_vla(tmp_path_factory.mktemp("vla"), request.param)


class _Replace(DenoiseHook):
    """Replaces x and the velocity by functions of themselves."""

    def __init__(self, x: object = None, velocity: object = None, *, grad: bool = False) -> None:
        self.x, self.velocity, self.grad = x, velocity, grad

    def needs_grad(self, index: int) -> bool:
        del index
        return self.grad

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        x = self.x(state.x) if callable(self.x) else state.x
        return x, self.velocity(state.velocity) if callable(self.velocity) else state.velocity


def test_our_sampler_gives_lerobots_chunk_to_the_bit(policy: LeRobotChunkPolicy) -> None:
    parity = check_parity(policy)
    assert parity.difference == 0.0
    assert parity.size > 0.5
    assert (parity.positions, parity.hook_calls, parity.encoder_calls) == (tiny.HORIZON, tiny.STEPS, 1)


def test_every_promise_of_a_policy_is_kept(policy: LeRobotChunkPolicy) -> None:
    with small_sizes() if policy.spec.name.startswith("pi") else nullcontext():  # a saved one is built anew
        assert "velocity is differentiable" in check_policy(policy)


@pytest.mark.parametrize("steps", [*range(1, 12), 23, 50, 100])
def test_times_and_steps_are_those_of_lerobots_integrator(policy: LeRobotChunkPolicy, steps: int) -> None:
    seen: list[float] = []

    def field(x: Tensor, time: Tensor) -> Tensor:
        seen.append(float(time[0]))
        return torch.sin(3 * x) + time[:, None, None]

    start = noise(policy)
    expected = euler_integrate(field, start, steps)
    sigmas = policy.sigmas(steps)
    assert sigmas[:-1].tolist() == seen
    assert float(sigmas[-1]) == 0.0
    state = start
    for index in range(steps):
        velocity = field(state, sigmas[index].expand(2))
        evaluation = Evaluation(state, velocity)
        state = policy.native_step(index, state, velocity, sigmas=sigmas, evaluation=evaluation)
    assert torch.equal(state, expected)


def test_a_hook_that_stops_the_motion_leaves_the_noise(policy: LeRobotChunkPolicy) -> None:
    given, start = observation(), noise(policy)
    chunk = sample_chunk(policy, ChunkRequest(given), start, [_Replace(velocity=torch.zeros_like)])
    assert torch.equal(chunk, policy.decode(start, policy.encode(given)))


def test_a_hook_with_velocity_one_moves_the_noise_by_one(policy: LeRobotChunkPolicy) -> None:
    given, start = observation(), noise(policy)
    chunk = sample_chunk(policy, ChunkRequest(given), start, [_Replace(velocity=torch.ones_like)])
    by_hand = policy.decode(start - 1.0, policy.encode(given))
    assert torch.allclose(chunk, by_hand, atol=1e-6)


def test_a_hook_reaches_nothing_through_padded_dimensions(policy: LeRobotChunkPolicy) -> None:
    def push(value: Tensor) -> Tensor:
        return torch.cat([value[..., :A], value[..., A:] + 100.0], dim=-1)

    request, start = ChunkRequest(observation()), noise(policy)
    plain = policy.chunk(request, start)
    assert torch.equal(sample_chunk(policy, request, start, [_Replace(push, push)]), plain)
    assert not torch.equal(policy.chunk(request, push(start)), plain)  # the network itself reads them


def test_a_context_stays_as_it_was(policy: LeRobotChunkPolicy) -> None:
    context = policy.encode(observation())
    before = {name: value.clone() for name, value in context.tensors.items()}
    versions = {name: value._version for name, value in context.tensors.items()}
    x = noise(policy).requires_grad_()
    for sigma in (1.0, 0.5):
        policy.velocity(x, torch.full((2,), sigma), context).sum().backward()
    assert all(torch.equal(context[name], before[name]) for name in before)
    assert {name: value._version for name, value in context.tensors.items()} == versions


def test_rows_and_repeat_choose_rows_of_the_cache(policy: LeRobotChunkPolicy) -> None:
    context = policy.encode(observation(3, tasks=("left", "to the right", "up")))
    x, sigma = noise(policy, 3), torch.tensor([1.0, 0.6, 0.2])
    together = policy.velocity(x, sigma, context)
    for index in ([2], [1, 0], [2, 2, 0]):
        chosen = policy.velocity(x[index], sigma[index], context.rows(index))
        assert torch.allclose(chosen, together[index], atol=_ROWS_APART)
    twice = policy.velocity(x.repeat_interleave(2, 0), sigma.repeat_interleave(2), context.repeat(2))
    assert torch.allclose(twice, together.repeat_interleave(2, 0), atol=_ROWS_APART)


def test_each_row_may_have_its_own_sigma(policy: LeRobotChunkPolicy) -> None:
    context, x = policy.encode(observation()), noise(policy)
    mixed = policy.velocity(x, torch.tensor([0.9, 0.3]), context)
    for row, sigma in enumerate((0.9, 0.3)):
        assert torch.equal(mixed[row], policy.velocity(x, torch.full((2,), sigma), context)[row])
    assert not torch.allclose(mixed[1], policy.velocity(x, torch.full((2,), 0.9), context)[1], atol=1e-3)


def test_a_sigma_per_position_and_foreign_rows_are_refused(policy: LeRobotChunkPolicy) -> None:
    context, x = policy.encode(observation()), noise(policy)
    with pytest.raises(ValueError, match="one level per row"):
        policy.velocity(x, torch.full((2, tiny.HORIZON), 0.5), context)
    with pytest.raises(ValueError, match="one level per row"):
        policy.velocity(x[:1], torch.full((1,), 0.5), context)


def test_gradients_agree_with_finite_differences(policy: LeRobotChunkPolicy) -> None:
    encoded = policy.encode(observation(1)).tensors.items()
    with DoubleMode():
        double = copy.deepcopy(policy).double()
        context = TensorContext({name: v.double() if v.is_floating_point() else v for name, v in encoded})
        weights = torch.randn(1, tiny.HORIZON, A, dtype=torch.float64)
        sigma = torch.full((1,), 0.6, dtype=torch.float64)

        def loss(x: Tensor) -> Tensor:
            clean = x - sigma[:, None, None] * double.velocity(x, sigma, context)
            return (weights * double.decode(clean, context)).sum()

        assert directional_gap(loss, noise(double, 1).double()) < 1e-6


def test_a_text_of_another_length_in_the_batch_changes_nothing(policy: LeRobotChunkPolicy) -> None:
    given = observation(2, tasks=("left", "put it into the bin on the right"))
    request, start = ChunkRequest(given), noise(policy)
    together = policy.chunk(request, start)
    for row in range(2):
        alone = policy.chunk(request.rows([row]), start[row : row + 1])
        assert torch.allclose(alone[0], together[row], atol=_ROWS_APART)


def test_the_text_matters(policy: LeRobotChunkPolicy) -> None:
    start = noise(policy, 1)
    chunks = [
        policy.chunk(ChunkRequest(observation(1, tasks=(text,))), start) for text in ("left bin", "right bin")
    ]
    assert float((chunks[0] - chunks[1]).abs().max()) > 1e-4


def test_inference_mode_gives_the_same_chunk_and_spoils_no_context(policy: LeRobotChunkPolicy) -> None:
    given, start = observation(), noise(policy)
    with torch.inference_mode():
        chunk = policy.chunk(ChunkRequest(given), start)
        context = policy.encode(given)
        with pytest.raises(PolicyError, match="inference_mode"):
            sample_chunk(policy, ChunkRequest(given), start, [DenoiseHook()])
    assert torch.equal(chunk, policy.chunk(ChunkRequest(given), start))
    assert not any(value.is_inference() for value in context.tensors.values())
    x = start.clone().requires_grad_()
    policy.velocity(x, torch.full((2,), 0.5), context).sum().backward()
    assert x.grad is not None


def test_training_mode_cannot_be_entered(policy: LeRobotChunkPolicy) -> None:
    before = policy.chunk(ChunkRequest(observation()), noise(policy))
    policy.train()
    assert not any(module.training for module in policy.modules())
    assert torch.equal(policy.chunk(ChunkRequest(observation()), noise(policy)), before)


def test_a_condition_is_refused(policy: LeRobotChunkPolicy) -> None:
    with pytest.raises(ValueError, match="'task'"):
        policy.encode(observation(), condition="left")


@pytest.mark.parametrize("kind", KINDS)
def test_more_actions_than_the_padded_width_are_refused(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = save_vla(tmp_path_factory.mktemp("wide") / kind, kind)
    tiny.change_config(folder, max_action_dim=2)
    with pytest.raises(CheckpointError, match="max_action_dim is 2"):
        open_vla(folder)
