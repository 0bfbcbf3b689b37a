from __future__ import annotations

import pytest
import torch

from policies.hooks import DenoiseHook
from policies.policy import PolicyError, require_chunk_policy
from policies.sampler import sample, sample_chunk
from policies.template_policy import HoldPolicy
from tests.policies.tools import ConstantVelocity, flow_policy, request


class Record(DenoiseHook):
    """Returns its input and remembers what it saw."""

    def __init__(self, grad: bool = False) -> None:
        self.grad, self.states, self.calls = grad, [], []

    def begin_chunk(self, request, policy, context) -> None:
        self.calls.append(("begin", len(context.rows([0]).tensors["projected"])))

    def needs_grad(self, index: int) -> bool:
        return self.grad

    def step(self, state):
        self.states.append(state)
        return state.x, state.velocity

    def end_chunk(self, chunk) -> None:
        self.calls.append(("end", None if chunk is None else tuple(chunk.shape)))


class Shift(DenoiseHook):
    """Adds constants to x and velocity, detached, at one step."""

    def __init__(self, x: float, velocity: float, at: int, grad: bool = False) -> None:
        self.x, self.velocity, self.at, self.grad = x, velocity, at, grad

    def needs_grad(self, index: int) -> bool:
        return self.grad

    def step(self, state):
        if state.index != self.at:
            return state.x, state.velocity
        return state.x + self.x, state.velocity + self.velocity


@pytest.mark.parametrize("grad", [False, True])
def test_identity_hook_leaves_every_sample_equal_to_the_bit(policy, chunk_request, noise, grad) -> None:
    plain = policy.chunk(chunk_request, noise=noise)
    hook = Record(grad)
    assert torch.equal(sample_chunk(policy, chunk_request, noise, [hook, Record()]), plain)
    assert [state.index for state in hook.states] == [0, 1, 2, 3]
    assert [state.sigma for state in hook.states] == [1.0, 0.75, 0.5, 0.25]
    assert hook.calls == [("begin", 1), ("end", tuple(plain.shape))]
    assert all((state.leaf is not None) == grad for state in hook.states)


@pytest.mark.parametrize("grad", [False, True])
def test_known_hook_gives_the_chunk_computed_by_hand(policy, chunk_request, noise, grad) -> None:
    context = policy.encode(chunk_request.observation)
    x = noise
    for index, sigma in enumerate((1.0, 0.75, 0.5, 0.25)):
        with torch.no_grad():
            velocity = policy.velocity(x, torch.full((4,), sigma, device=x.device), context)
        if index == 2:
            x, velocity = x + 0.3, velocity - 0.7
        x = x - 0.25 * velocity
    expected = policy.decode(x, context)
    chunk = sample_chunk(policy, chunk_request, noise, [Shift(0.3, -0.7, 2, grad)])
    torch.testing.assert_close(chunk, expected.detach(), atol=1e-7, rtol=1e-5)
    assert not torch.allclose(chunk, policy.chunk(chunk_request, noise=noise), atol=1e-4)


def test_clean_is_rebuilt_between_hooks_on_one_graph(policy, chunk_request, noise) -> None:
    second = Record(grad=True)
    context = policy.encode(chunk_request.observation)
    gradients = []

    class Differentiate(DenoiseHook):
        def step(self, state):
            gradients.append(torch.autograd.grad(state.clean.sum(), state.leaf, retain_graph=True)[0])
            return state.x, state.velocity

    with torch.no_grad():
        sample(policy, context, noise, [Shift(0.0, 1.0, 1), Differentiate(), second])
    seen = second.states[1]
    torch.testing.assert_close(seen.clean, seen.x - 0.75 * seen.velocity)
    torch.testing.assert_close(
        seen.velocity, policy.velocity(seen.leaf, torch.full((4,), 0.75, device=noise.device), context) + 1.0
    )
    assert len(gradients) == 4
    assert all(bool(gradient.abs().max() > 0) for gradient in gradients)


def test_gradient_of_clean_is_right_by_finite_differences() -> None:
    policy = flow_policy().double()
    observation = {
        k: v.double() if isinstance(v, torch.Tensor) else v for k, v in request(2).observation.items()
    }
    with torch.no_grad():
        context = policy.encode({"observation.state": observation["observation.state"].float()})
    noise = torch.randn(2, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    class Check(DenoiseHook):
        def needs_grad(self, index: int) -> bool:
            return index == 1

        def step(self, state):
            if state.index == 1:
                (gradient,) = torch.autograd.grad(state.clean[0].square().sum(), state.leaf)
                assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))
                for place in ((0, 0, 0), (0, 3, 1), (0, 5, 2)):
                    offset = torch.zeros_like(state.x)
                    offset[place] = 1e-6
                    values = [self.value(state, state.x.detach() + sign * offset) for sign in (1, -1)]
                    assert gradient[place] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-3)
            return state.x, state.velocity

        def value(self, state, x) -> float:
            with torch.no_grad():
                return float((x - state.sigma * state.velocity_fn(x, state.sigma))[0].square().sum())

    sample(policy, context, noise, [Check()])


def test_network_runs_once_per_step_and_encode_once_per_chunk(
    policy, chunk_request, noise, monkeypatch
) -> None:
    counts = {"encode": 0, "velocity": 0}
    for name in counts:
        original = getattr(policy, name)

        def counted(*args, _name=name, _original=original, **kwargs):
            counts[_name] += 1
            return _original(*args, **kwargs)

        monkeypatch.setattr(policy, name, counted)
    sample_chunk(policy, chunk_request, noise, [Record(grad=True), Record()])
    assert counts == {"encode": 1, "velocity": 4}


def test_steps_can_be_chosen(policy, chunk_request, noise) -> None:
    context = policy.encode(chunk_request.observation)
    one = sample(policy, context, noise, steps=1)
    level = torch.ones(4, device=noise.device)
    torch.testing.assert_close(one, noise - policy.velocity(noise, level, context))


def test_no_grad_callers_get_gradients_and_no_graph_leaves(policy, chunk_request, noise) -> None:
    with torch.no_grad():
        chunk = sample_chunk(policy, chunk_request, noise, [Record(grad=True)])
    assert not chunk.requires_grad
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_inference_mode_is_refused_with_hooks_only(policy, chunk_request, noise) -> None:
    with torch.inference_mode():
        chunk = policy.chunk(chunk_request, noise=noise)
        with pytest.raises(PolicyError, match=r"torch\.inference_mode.*torch\.no_grad"):
            sample_chunk(policy, chunk_request, noise, [Record()])
    assert torch.equal(chunk, policy.chunk(chunk_request, noise=noise))


def test_inference_tensors_are_taken_outside_inference_mode(policy, chunk_request, noise) -> None:
    with torch.inference_mode():
        foreign = noise.clone()
    plain = policy.chunk(chunk_request, noise=noise)
    assert torch.equal(sample_chunk(policy, chunk_request, foreign, [Record(grad=True)]), plain)


@pytest.mark.slow
def test_compile_is_refused() -> None:
    policy = flow_policy()
    with torch.no_grad():
        context = policy.encode(request(1).observation)
    compiled = torch.compile(lambda x: sample(policy, context, x), backend="eager")
    with pytest.raises(PolicyError, match=r"inside torch\.compile"):
        compiled(torch.zeros(1, 6, 3))


def test_hooks_end_when_sampling_fails(policy, chunk_request, noise) -> None:
    class Fail(Record):
        def step(self, state):
            raise ValueError("no")

    hook, other = Fail(), Record()
    with pytest.raises(ValueError, match="no"):
        sample_chunk(policy, chunk_request, noise, [hook, other])
    assert hook.calls[-1] == other.calls[-1] == ("end", None)


def test_wrong_shapes_are_named(policy, chunk_request, noise) -> None:
    with pytest.raises(ValueError, match=r"noise has shape \(3, 6, 3\).*\(4, 6, 3\)"):
        policy.chunk(chunk_request, noise=noise[:3])

    class Cut(DenoiseHook):
        def step(self, state):
            return state.x[:1], state.velocity

    with pytest.raises(ValueError, match="Cut returned shapes"):
        sample_chunk(policy, chunk_request, noise, [Cut()])
    context = policy.encode(chunk_request.observation)
    with pytest.raises(ValueError, match="does not take step_noise"):
        sample(policy, context, noise, step_noise=noise[None])


def test_policies_without_gradients_or_velocity_are_named() -> None:
    policy = ConstantVelocity()
    object.__setattr__(policy.spec.supports, "gradients", False)
    context = policy.encode(request(1).observation)
    with pytest.raises(PolicyError, match="'ddim' gives no gradients"):
        sample(policy, context, torch.zeros(1, 4, 3), [Record(grad=True)])
    with pytest.raises(PolicyError, match=r"'hold'.*guidance by hooks is impossible"):
        require_chunk_policy(HoldPolicy(), "guidance by hooks")
