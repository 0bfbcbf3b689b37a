"""The one denoising loop. Every method that acts inside the denoising is a hook of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.hooks import DenoiseHook, DenoiseState, VelocityFn
from policies.noise import check_noise, step_noise_of
from policies.policy import ChunkPolicy, Evaluation, PolicyError

if TYPE_CHECKING:
    from jaxtyping import Float

    from policies.context import Context
    from policies.request import ChunkRequest, Condition

StepNoise = Tensor | Callable[[int], Tensor]
"""Fresh noise per step: (steps, B, H, Z), or a function of the step number that returns (B, H, Z)."""


def sample(
    policy: ChunkPolicy,
    context: Context,
    noise: Float[Tensor, "B H Z"],
    hooks: Sequence[DenoiseHook] = (),
    *,
    steps: int | None = None,
    step_noise: StepNoise | None = None,
) -> Float[Tensor, "B H Z"]:
    """Denoise from sigma 1 to 0 and return the clean chunk in the policy's normalised space.

    Args:
        policy: whose velocity is integrated.
        context: `policy.encode(observation)`; rows match the noise.
        noise: initial noise per row.
        hooks: applied in this order at every step; `begin_chunk` and `end_chunk` are the caller's to call, as
            `sample_chunk` does.
        steps: number of denoising steps; None: the policy's own.
        step_noise: see `StepNoise`; needed exactly when the policy's process takes it.

    Raises:
        PolicyError: under torch.compile, with hooks under torch.inference_mode, or when a hook asks for
            gradients that the policy does not give.
        ValueError: if a shape is wrong or step noise is missing or not wanted.
    """
    _refuse_unsuitable_mode(policy, hooks)
    check_noise(policy.spec, noise, context.batch_size)
    if policy.spec.supports.step_noise != (step_noise is not None):
        verb = "needs" if policy.spec.supports.step_noise else "does not take"
        raise ValueError(f"policy {policy.spec.name!r} {verb} step_noise")
    sigmas = policy.sigmas(steps)
    levels = sigmas.tolist()
    # An inference tensor cannot enter a graph later; its clone can.
    state = noise.clone() if noise.is_inference() else noise
    for index in range(len(levels) - 1):
        grad = any(hook.needs_grad(index) for hook in hooks)
        if grad and not policy.spec.supports.gradients:
            raise PolicyError(f"policy {policy.spec.name!r} gives no gradients, but a hook needs them")
        with torch.set_grad_enabled(grad or torch.is_grad_enabled()):
            evaluation = policy.evaluate(index, state, sigmas, context, grad=grad)
            x, velocity = evaluation.x, evaluation.velocity
            if hooks:
                start = _first_state(policy, context, evaluation, grad=grad)
                start = replace(start, index=index, steps=len(levels) - 1, sigma=levels[index])
                x, velocity = run_hooks(hooks, start)
        if grad:
            evaluation, x, velocity = _detach(evaluation, x, velocity)
        fresh = _step_noise(step_noise, index)
        state = policy.native_step(index, x, velocity, sigmas=sigmas, evaluation=evaluation, noise=fresh)
    return state


def sample_chunk(
    policy: ChunkPolicy,
    request: ChunkRequest,
    noise: Float[Tensor, "B H Z"] | None = None,
    hooks: Sequence[DenoiseHook] = (),
    condition: Condition = None,
    *,
    steps: int | None = None,
    step_noise: StepNoise | None = None,
) -> Float[Tensor, "B H A"]:
    """Encode once, tell the hooks, denoise, decode: a whole chunk in robot units, without a graph.

    Args:
        policy: whose chunk is wanted.
        request: observation and execution state of B rows.
        noise: (B, *policy.spec.noise_shape); None: drawn from torch's global generator.
        hooks: see `sample`; their begin_chunk and end_chunk are called here.
        condition: see `policies.request.Condition`.
        steps: number of denoising steps; None: the policy's own.
        step_noise: see `StepNoise`; None: what follows from `noise`, see `policies.noise.step_noise_of`.
    """
    _refuse_unsuitable_mode(policy, hooks)
    with torch.no_grad():
        context = policy.encode(request.observation, condition)
        if noise is None:
            noise = torch.randn(context.batch_size, *policy.spec.noise_shape)
        begun: list[DenoiseHook] = []
        chunk: Tensor | None = None
        try:
            for hook in hooks:
                begun.append(hook)
                hook.begin_chunk(request, policy, context)
            chunk = denoise(policy, context, noise, hooks, steps=steps, step_noise=step_noise)
        finally:
            for hook in reversed(begun):
                hook.end_chunk(chunk)
    return chunk


@torch.no_grad()
def denoise(
    policy: ChunkPolicy,
    context: Context,
    noise: Float[Tensor, "B H Z"],
    hooks: Sequence[DenoiseHook] = (),
    *,
    steps: int | None = None,
    step_noise: StepNoise | None = None,
) -> Float[Tensor, "B H A"]:
    """Denoise and decode for observations that are encoded already; robot units, without a graph.

    Args:
        policy: whose chunk is wanted.
        context: of the rows of the noise.
        noise: (B, *policy.spec.noise_shape).
        hooks: see `sample`; they were told of the chunk.
        steps: number of denoising steps; None: the policy's own.
        step_noise: see `StepNoise`; None: what follows from `noise`, see `policies.noise.step_noise_of`.
    """
    noise = noise.to(policy.device)
    if step_noise is None and policy.spec.supports.step_noise:
        step_noise = step_noise_of(noise)
    return policy.decode(sample(policy, context, noise, hooks, steps=steps, step_noise=step_noise), context)


def _first_state(
    policy: ChunkPolicy, context: Context, evaluation: Evaluation, *, grad: bool
) -> DenoiseState:
    """What the first hook sees, except for the numbers of the step."""
    return DenoiseState(
        index=0,
        steps=0,
        sigma=1.0,
        x=evaluation.x,
        velocity=evaluation.velocity,
        clean=evaluation.x,
        leaf=evaluation.x if grad else None,
        velocity_fn=velocity_function(policy, context),
        policy=policy,
        context=context,
    )


def run_hooks(hooks: Sequence[DenoiseHook], start: DenoiseState) -> tuple[Tensor, Tensor]:
    """Return x and velocity after the hooks of one step, each of which sees what the one before left.

    Args:
        hooks: in the order in which they act.
        start: what the first one sees; its `clean` is worked out here.

    Raises:
        ValueError: if a hook returns another shape.
    """
    x, velocity = start.x, start.velocity
    for hook in hooks:
        x, velocity = hook.step(replace(start, x=x, velocity=velocity, clean=x - start.sigma * velocity))
        if x.shape != start.x.shape or velocity.shape != start.x.shape:
            raise ValueError(
                f"hook {type(hook).__name__} returned shapes {tuple(x.shape)}, {tuple(velocity.shape)}; "
                f"expected both {tuple(start.x.shape)}"
            )
    return x, velocity


def _detach(evaluation: Evaluation, x: Tensor, velocity: Tensor) -> tuple[Evaluation, Tensor, Tensor]:
    """Cut the graph, but keep object identity where a hook left x or velocity untouched."""
    plain = Evaluation(evaluation.x.detach(), evaluation.velocity.detach(), evaluation.native)
    return (
        plain,
        plain.x if x is evaluation.x else x.detach(),
        plain.velocity if velocity is evaluation.velocity else velocity.detach(),
    )


def velocity_function(policy: ChunkPolicy, own: Context) -> VelocityFn:
    """Return the `DenoiseState.velocity_fn` of a policy.

    Args:
        policy: whose network is run.
        own: the context that is meant where none is given.
    """

    def velocity_fn(x: Tensor, sigma: float | Tensor, context: Context | None = None) -> Tensor:
        level = sigma if isinstance(sigma, Tensor) else torch.full((), sigma, dtype=x.dtype, device=x.device)
        if level.ndim == 0:
            level = level.expand(x.shape[0])
        return policy.velocity(x, level, own if context is None else context)

    return velocity_fn


def _step_noise(step_noise: StepNoise | None, index: int) -> Tensor | None:
    if step_noise is None:
        return None
    return step_noise[index] if isinstance(step_noise, Tensor) else step_noise(index)


def _refuse_unsuitable_mode(policy: ChunkPolicy, hooks: Sequence[DenoiseHook]) -> None:
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break()  # noqa: SLF001 - without it the compiler swallows the error
        raise PolicyError(
            f"the sampler of policy {policy.spec.name!r} cannot run inside torch.compile, which would "
            "hide its hooks; compile policy.velocity alone, or call the sampler outside"
        )
    if hooks and torch.is_inference_mode_enabled():
        raise PolicyError(
            f"the sampler of policy {policy.spec.name!r} has hooks but runs under torch.inference_mode, "
            "where gradients cannot be taken; use torch.no_grad, or wrap it in torch.inference_mode(False)"
        )
