"""Real-time chunking: weights by hand, the frozen prefix, gradients, and rows without an old chunk."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from policies.context import TensorContext
from policies.hooks import DenoiseHook
from policies.policy import ChunkPolicy
from policies.sampler import sample, sample_chunk
from robot_rl.guide.real_time import (
    RealTimeChunking,
    RealTimeConfig,
    guidance_weight,
    prefix_weights,
    shifted,
)
from tests.policies.tools import A, ConstantVelocity, flow_policy, request

ROWS, H = 3, 6


def noise(policy, rows=ROWS, seed=3):
    return torch.randn(rows, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(seed))


def previous(policy, rows=ROWS):
    """A chunk that the policy could have made, of other noise and another observation."""
    return policy.chunk(request(rows, seed=9), noise=noise(policy, rows, seed=8))


def asked(policy, consumed=2, delay=1, rows=ROWS):
    return request(
        rows,
        previous_chunk=previous(policy, rows),
        consumed=torch.full((rows,), consumed),
        delay=torch.full((rows,), delay),
    )


@pytest.mark.parametrize(
    ("schedule", "between"),
    [
        # d = 2, end = 5: c = (5 - i) / (5 - 2 + 1) = 3/4, 2/4, 1/4 at i = 2, 3, 4
        ("linear", [0.75, 0.5, 0.25]),
        ("exponential", [c * math.expm1(c) / math.expm1(1) for c in (0.75, 0.5, 0.25)]),
        ("ones", [1, 1, 1]),
        ("zeros", [0, 0, 0]),
    ],
)
def test_weights_by_hand(schedule, between):
    found = prefix_weights(torch.tensor([2]), torch.tensor([5]), 8, schedule)
    torch.testing.assert_close(found, torch.tensor([[1.0, 1.0, *between, 0.0, 0.0, 0.0]]))


def test_weights_differ_by_row_and_end_where_the_old_chunk_ends():
    found = prefix_weights(torch.tensor([1, 4, 0]), torch.tensor([3, 2, 0]), 5, "ones")
    assert found.tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_guidance_weight_by_hand():
    assert guidance_weight(1.0, 10.0) == 10.0  # the ratio is infinite at pure noise
    assert guidance_weight(0.5, 10.0) == pytest.approx(2.0)
    assert guidance_weight(0.1, 10.0) == pytest.approx((0.81 + 0.01) / 0.09)
    assert guidance_weight(0.1, 5.0) == 5.0


def test_what_is_left_of_a_chunk_starts_at_the_next_step_and_its_last_action_fills_the_end():
    chunk = torch.arange(4.0)[None, :, None].repeat(2, 1, 1)
    assert shifted(chunk, torch.tensor([1, 3]))[..., 0].tolist() == [[1, 2, 3, 3], [3, 3, 3, 3]]


@pytest.mark.parametrize("gradient", ["identity", "network"])
@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "diffusion"])
def test_the_steps_executed_meanwhile_are_those_of_the_old_chunk(policy, gradient):
    horizon = policy.spec.horizon
    asking = asked(policy, consumed=1, delay=2)
    hook = RealTimeChunking(RealTimeConfig(gradient=gradient))
    chunk = sample_chunk(policy, asking, noise(policy), [hook])
    old = asking.previous_chunk
    plain = sample_chunk(policy, asking, noise(policy))
    first = policy.spec.first_action
    torch.testing.assert_close(chunk[:, : first + 2], old[:, 1 : first + 3], rtol=0, atol=1e-6)
    assert (plain[:, : first + 2] - old[:, 1 : first + 3]).abs().max() > 1e-3
    later = slice(first + 2, horizon - 1)
    assert (chunk[:, later] - old[:, first + 3 :]).abs().mean() < (
        plain[:, later] - old[:, first + 3 :]
    ).abs().mean()


def test_the_soft_prefix_leaves_the_error_that_the_weights_allow():
    """Identity Jacobian, beta = n: only the last step counts and leaves 1 - w / n of the error."""
    policy = flow_policy(steps=10)

    class ToItself(DenoiseHook):  # a policy whose clean estimate is always zero: v = x / sigma
        def step(self, state):
            return state.x, state.x / state.sigma

    asking = asked(policy, consumed=0, delay=2)
    soft = RealTimeChunking(RealTimeConfig(hard=False, schedule="zeros"))
    chunk = sample_chunk(policy, asking, noise(policy), [ToItself(), soft])
    bare = sample_chunk(policy, asking, noise(policy), [ToItself()])
    left = (chunk - asking.previous_chunk)[:, :2] / (bare - asking.previous_chunk)[:, :2]
    expected = 1 - guidance_weight(0.1, 10.0) / 10
    assert expected == pytest.approx(0.0889, abs=1e-4)
    torch.testing.assert_close(left, torch.full_like(left, expected), rtol=1e-3, atol=1e-3)


def test_the_gradient_goes_through_the_network():
    """The correction equals finite differences of the clean estimate; the identity form does not."""
    policy = flow_policy()
    asking = asked(policy)
    context = policy.encode(asking.observation)
    given = noise(policy)
    hook = RealTimeChunking(RealTimeConfig(gradient="network", hard=False, max_weight=1.0))
    hook.begin_chunk(asking, policy, context)
    sigma = torch.full((ROWS,), 0.6)

    def clean(x):
        return x - 0.6 * policy.velocity(x, sigma, context)

    error = (hook._target - clean(given)) * hook._weights
    expected = torch.zeros_like(given)
    for place in [(0, 0, 0), (1, 3, 2), (2, 4, 1)]:
        shift = torch.zeros_like(given)
        shift[place] = 1e-2
        expected[place] = ((clean(given + shift) - clean(given - shift)) / 2e-2 * error).sum()
    leaf = given.clone().requires_grad_(True)
    (found,) = torch.autograd.grad(clean(leaf), leaf, error.detach())
    for place in [(0, 0, 0), (1, 3, 2), (2, 4, 1)]:
        assert found[place] == pytest.approx(expected[place].item(), rel=1e-2, abs=1e-3)
    seen = {}

    class Catch(DenoiseHook):
        def step(self, state):
            seen.setdefault(state.index, state.velocity.detach().clone())
            return state.x, state.velocity

    sample_chunk(policy, asking, given, [hook, Catch()])
    plain = policy.velocity(given, torch.ones(ROWS), context)
    leaf = given.clone().requires_grad_(True)
    first = leaf - policy.velocity(leaf, torch.ones(ROWS), context)
    hook.begin_chunk(asking, policy, context)
    pulled = ((hook._target - first) * hook._weights).detach()
    (through,) = torch.autograd.grad(first, leaf, pulled)
    torch.testing.assert_close(seen[0], plain - through)
    assert (through - pulled).abs().max() > 1e-2  # the identity form is another method


@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "diffusion"])
def test_rows_without_an_old_chunk_are_denoised_as_without_the_hook_to_the_bit(policy):
    hook = RealTimeChunking()
    plain = sample_chunk(policy, request(ROWS), noise(policy))
    assert torch.equal(sample_chunk(policy, request(ROWS), noise(policy), [hook]), plain)
    horizon = policy.spec.horizon
    mixed = request(
        ROWS, previous_chunk=previous(policy), consumed=torch.tensor([1, horizon, horizon + 4]),
        delay=torch.tensor([1, 0, 2]),
    )  # fmt: skip
    found = sample_chunk(policy, mixed, noise(policy), [hook])
    assert torch.equal(found[1:], plain[1:])
    assert not torch.equal(found[0], plain[0])


def test_rows_do_not_depend_on_their_neighbours():
    policy = flow_policy()
    hook = RealTimeChunking(RealTimeConfig(gradient="network"))
    asking = asked(policy)
    together = sample_chunk(policy, asking, noise(policy), [hook])
    for row in range(ROWS):
        alone = sample_chunk(policy, asking.rows([row]), noise(policy)[row : row + 1], [hook])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-6)


class Padded(ChunkPolicy):
    """Its network sees two dimensions more than the robot has, and sends everything to zero."""

    device = torch.device("cpu")

    def __init__(self):
        like = flow_policy().spec
        self._spec = dataclasses.replace(like, name="padded", noise_width=A + 2)

    @property
    def spec(self):
        return self._spec

    def hash(self):
        return "padded"

    def encode(self, observation, condition=None):
        return TensorContext({"state": observation["observation.state"]})

    def velocity(self, x, sigma, context):
        return x / sigma[:, None, None]

    def sigmas(self, steps=None):
        return torch.linspace(1.0, 0.0, (steps or 4) + 1)

    def decode(self, x, context):
        return x[..., :A]

    def encode_action(self, action, context):
        return torch.nn.functional.pad(action, (0, 2), value=7.0)


def test_padded_dimensions_are_left_to_the_policy():
    policy = Padded()
    asking = request(
        1, previous_chunk=torch.ones(1, H, A), consumed=torch.tensor([2]), delay=torch.tensor([1])
    )
    context = policy.encode(asking.observation)
    hook = RealTimeChunking(RealTimeConfig(schedule="ones"))
    hook.begin_chunk(asking, policy, context)
    clean = sample(policy, context, noise(policy, 1), [hook])
    assert (clean[..., A:] == 0).all()
    assert (clean[:, 0, :A] == 1).all()
    assert (clean[:, 1:4, :A] > 0.7).all()
    assert (clean[:, 4:] == 0).all()


def test_values_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="gradient is 'none'; allowed: identity, network"):
        RealTimeConfig(gradient="none")
    with pytest.raises(ValueError, match="schedule is 'cosine'; allowed: exponential, linear"):
        RealTimeConfig(schedule="cosine")
    with pytest.raises(ValueError, match="max_weight is -1"):
        RealTimeConfig(max_weight=-1)
