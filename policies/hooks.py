"""Hooks into the denoising: what a hook sees at each step and what it may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from policies.context import Context
from policies.policy import ChunkPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.request import ChunkRequest

VelocityFn = Callable[..., Tensor]
"""`velocity_fn(x, sigma, context=None)`: runs the network again; sigma is a float, (B,) or (B, H)."""


@dataclass(frozen=True)
class DenoiseState:
    """One step of the denoising, as a hook sees it (after the hooks before it).

    Attributes:
        index: step number, 0 .. steps - 1.
        steps: number of steps of this denoising.
        sigma: noise level of this step, the same for all rows.
        x: (B, H, Z) noisy chunk, normalised and padded.
        velocity: (B, H, Z) v = eps - a.
        clean: (B, H, Z) x - sigma v, on the same graph as `leaf` when that is given.
        leaf: (B, H, Z) the x that entered the network, requiring grad, if a hook asked for gradients at this
            step. Differentiate with respect to it and add detached offsets; the network runs only once.
        velocity_fn: see `VelocityFn`.
        policy: the policy being sampled (`decode`, `encode_action`, `spec`).
        context: its context of these rows.
    """

    index: int
    steps: int
    sigma: float
    x: Float[Tensor, "B H Z"]
    velocity: Float[Tensor, "B H Z"]
    clean: Float[Tensor, "B H Z"]
    leaf: Float[Tensor, "B H Z"] | None
    velocity_fn: VelocityFn
    policy: ChunkPolicy
    context: Context


class DenoiseHook:
    """Base class of hooks; it changes nothing.

    Rows of a batch are independent: a hook treats each row on its own, and keeps state per episode, never per
    batch.

    Attributes:
        order: place among composed hooks, lowest first: classifier-free guidance 10, proxy steering 20,
            latent guidance 30, critic guidance 40, anything else 50, real-time chunking 100.
        keys: observation keys that the hook reads besides the policy's own; they are in the request then.
            "task" is the text.
    """

    keys: tuple[str, ...] = ()
    order: int = 50

    def begin_episode(self, rows: Sequence[str]) -> None:
        """Forget what is known of these episode ids; called when episodes start."""

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Prepare for one chunk; called once before its first step.

        Args:
            request: observation, previous chunk, delay and episode ids of the rows.
            policy: the policy about to be sampled.
            context: its context of these rows.
        """

    def needs_grad(self, index: int) -> bool:
        """Whether `DenoiseState.leaf` is wanted at step `index`."""
        del index
        return False

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Return (x, velocity) to go on with.

        Returning the very objects of the state means "unchanged" and leaves the native process as it was, to
        the bit.
        """
        return state.x, state.velocity

    def info(self) -> Mapping[str, Tensor]:
        """Diagnostics of the last chunk, each (B, ...); they are recorded with every step of it."""
        return {}

    def end_chunk(self, chunk: Float[Tensor, "B H A"] | None) -> None:
        """Clean up after a chunk.

        Args:
            chunk: the result in robot units; None if the sampling failed.
        """
