from __future__ import annotations

import torch

from policies.hooks import DenoiseHook
from policies.sampler import sample
from policies.variance_preserving import alpha_bar_of, noise_of, sigma_of, velocity_of, view_scale
from tests.policies.tools import ConstantVelocity, request


def test_view_of_a_hand_worked_state() -> None:
    # abar = 0.64: sqrt = 0.8, sqrt(1 - abar) = 0.6, scale 1.4, sigma 3/7.
    alpha_bar = torch.tensor(0.64, dtype=torch.float64)
    clean, eps = torch.tensor(2.0, dtype=torch.float64), torch.tensor(-1.0, dtype=torch.float64)
    native = 0.8 * clean + 0.6 * eps
    torch.testing.assert_close(sigma_of(alpha_bar), torch.tensor(3 / 7, dtype=torch.float64))
    x = native / view_scale(alpha_bar)
    torch.testing.assert_close(x, torch.tensor(4 / 7 * 2.0 + 3 / 7 * -1.0, dtype=torch.float64))
    torch.testing.assert_close(velocity_of(native, eps, alpha_bar), eps - clean)


def test_identities_of_the_view_hold_at_every_level() -> None:
    generator = torch.Generator().manual_seed(0)
    clean, eps = torch.randn(2, 50, generator=generator, dtype=torch.float64)
    alpha_bar = torch.linspace(0.001, 1.0, 50, dtype=torch.float64)
    sigma = sigma_of(alpha_bar)
    native = alpha_bar.sqrt() * clean + (1 - alpha_bar).sqrt() * eps
    x = native / view_scale(alpha_bar)
    velocity = velocity_of(native, eps, alpha_bar)
    torch.testing.assert_close(x, (1 - sigma) * clean + sigma * eps)
    torch.testing.assert_close(x - sigma * velocity, clean)
    torch.testing.assert_close(noise_of(x, velocity, sigma), eps)
    torch.testing.assert_close(alpha_bar_of(sigma), alpha_bar)
    assert sigma[-1] == 0


class Identity(DenoiseHook):
    def __init__(self, grad: bool) -> None:
        self.grad = grad

    def needs_grad(self, index: int) -> bool:
        return self.grad


def test_untouched_steps_equal_the_plain_scheduler_to_the_bit() -> None:
    policy = ConstantVelocity()
    context = policy.encode(request(5).observation)
    noise = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(1))
    native = noise
    for index, alpha_bar in enumerate(policy.table[:-1]):
        prediction = policy.predict_noise(native, alpha_bar.expand(5), context)
        native = policy.scheduler_step(index, native, prediction, policy.table, None)
    for hooks in ([], [Identity(False)], [Identity(True)]):
        assert torch.equal(sample(policy, context, noise, hooks), native)


def test_rows_that_a_hook_left_alone_equal_the_plain_scheduler_to_the_bit() -> None:
    class ChangeOne(DenoiseHook):
        def step(self, state):
            offset = torch.tensor([0.0, 0.3, 0.0])[:, None, None]
            return state.x + offset, state.velocity - offset

    policy = ConstantVelocity()
    context = policy.encode(request(3).observation)
    noise = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(3))
    plain, changed = sample(policy, context, noise), sample(policy, context, noise, [ChangeOne()])
    assert torch.equal(changed[[0, 2]], plain[[0, 2]])
    assert not torch.allclose(changed[1], plain[1])


def test_evaluated_velocity_equals_the_velocity_at_the_view() -> None:
    policy = ConstantVelocity()
    context = policy.encode(request(2).observation)
    sigmas = policy.sigmas()
    state = torch.randn(2, 4, 3)
    evaluation = policy.evaluate(1, state, sigmas, context)
    again = policy.velocity(evaluation.x, sigmas[1].expand(2), context)
    torch.testing.assert_close(evaluation.velocity, again, atol=1e-4, rtol=1e-4)


def test_changed_velocity_reaches_the_scheduler() -> None:
    class Replace(DenoiseHook):
        def step(self, state):
            # a velocity that says: the clean chunk is 0.5 everywhere
            return state.x, (state.x - 0.5) / max(state.sigma, 1e-6)

    policy = ConstantVelocity()
    context = policy.encode(request(2).observation)
    chunk = sample(policy, context, torch.randn(2, 4, 3), [Replace()])
    torch.testing.assert_close(chunk, torch.full((2, 4, 3), 0.5), atol=1e-5, rtol=0)


def test_gradient_with_respect_to_the_view() -> None:
    policy = ConstantVelocity((0.3, 1.0))
    context = policy.encode(request(1).observation)
    state = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(2))
    evaluation = policy.evaluate(0, state, policy.sigmas(), context, grad=True)
    (gradient,) = torch.autograd.grad(evaluation.velocity.sum(), evaluation.x)
    step = 1e-2
    sigma = policy.sigmas()[:1]
    x = evaluation.x.detach()
    up, down = (policy.velocity(x + sign * step, sigma, context) for sign in (1, -1))
    torch.testing.assert_close(gradient, (up - down) / (2 * step), atol=2e-2, rtol=2e-2)
