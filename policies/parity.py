"""Whether an adapter gives what the original program gives for the same observation and noise, measured."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from unittest import mock

import torch
from torch import Tensor

from policies.conformance import random_request
from policies.hooks import DenoiseHook, DenoiseState
from policies.noise import step_noise_of
from policies.policy import ChunkPolicy, Policy
from policies.sampler import sample_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policies.request import ChunkRequest, Observation


@runtime_checkable
class HasOriginal(Protocol):
    """A policy that can also be asked the way its own program asks it."""

    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return the original program's chunk, (B, n, A), normalised, from position `first_action` on."""
        ...


@dataclass(frozen=True)
class Parity:
    """How far two programs are apart on one policy.

    Attributes:
        policy: its name.
        difference: greatest |difference| of normalised actions; 0 means bit for bit.
        size: greatest |normalised action|, to compare with.
        positions: number of chunk positions compared.
        steps: denoising steps; 0 for a policy without.
        hook_calls: how often a hook was asked; must be `steps`.
        encoder_calls: how often the observation was encoded for the chunk; must be 1 for an open policy.
    """

    policy: str
    difference: float
    size: float
    positions: int
    steps: int
    hook_calls: int
    encoder_calls: int

    def within(self, tolerance: float = 0.0) -> bool:
        """Whether the chunks agree and the calls are as they must be.

        Args:
            tolerance: allowed |difference| of normalised actions.
        """
        calls = self.hook_calls == self.steps and self.encoder_calls == (1 if self.steps else 0)
        return self.difference <= tolerance and calls


def check_parity(
    policy: Policy, request: ChunkRequest | None = None, *, rows: int = 3, seed: int = 0
) -> Parity:
    """Compare the chunk through our sampler with the original program's own.

    Args:
        policy: that knows its original (`HasOriginal`).
        request: observations to try, such as recorded frames; None: random ones.
        rows: of random observations.
        seed: of them and of the noise.

    Raises:
        TypeError: if the policy has no original to compare with.
    """
    if not isinstance(policy, HasOriginal):
        raise TypeError(f"policy {policy.spec.name!r} has no original program to compare with")
    generator = torch.Generator().manual_seed(seed)
    request = random_request(policy, generator, rows) if request is None else request
    if not isinstance(policy, ChunkPolicy):
        first, second = policy.original(request.observation), policy.original(request.observation)
        return _compared(policy, first, second, steps=0, hook_calls=0, encoder_calls=0)
    noise = torch.randn(request.rows_count, *policy.spec.noise_shape, generator=generator).to(policy.device)
    steps = len(policy.sigmas()) - 1
    hook = _Counter()
    with (
        mock.patch.object(policy, "encode", wraps=policy.encode) as encode,
        mock.patch.object(policy, "decode", wraps=policy.decode) as decode,
    ):
        sample_chunk(policy, request, noise, [hook])
    ours: Tensor = decode.call_args.args[0]
    fresh = step_noise_of(noise) if policy.spec.supports.step_noise else None
    drawn = [] if fresh is None else [fresh(index) for index in range(steps)]
    with torch.no_grad():
        theirs = policy.original(request.observation, noise, drawn)
    ours = ours[:, policy.spec.first_action :][:, : theirs.shape[1], : theirs.shape[2]]
    return _compared(
        policy, ours, theirs, steps=steps, hook_calls=hook.calls, encoder_calls=encode.call_count
    )


@contextmanager
def drawing(*values: Tensor) -> Iterator[None]:
    """Let a program that draws its noise with `torch.randn` draw these tensors instead, in this order.

    Args:
        *values: one per draw.

    Raises:
        RuntimeError: if it draws more or fewer, or another shape.
    """
    left = list(values)

    def randn(*shape: Any, size: Any = None, **_: object) -> Tensor:  # noqa: ANN401 - as torch takes it
        if not left:
            raise RuntimeError(f"the program draws more than the {len(values)} noises that were expected")
        value = left.pop(0)
        wanted = tuple(size if size is not None else shape[0] if len(shape) == 1 else shape)
        if tuple(value.shape) != wanted:
            raise RuntimeError(
                f"the program draws noise of shape {wanted}; {tuple(value.shape)} was expected"
            )
        return value

    with mock.patch.object(torch, "randn", randn):
        yield
    if left:
        raise RuntimeError(f"the program drew {len(values) - len(left)} noises of {len(values)} expected")


def _compared(policy: Policy, ours: Tensor, theirs: Tensor, **calls: int) -> Parity:
    gap = (ours.to(theirs) - theirs).abs().max()
    return Parity(policy.spec.name, float(gap), float(theirs.abs().max()), int(theirs.shape[1]), **calls)


class _Counter(DenoiseHook):
    """Counts how often it is asked and changes nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return state.x, state.velocity
