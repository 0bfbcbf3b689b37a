"""Critic guidance: the denoising climbs the value of what will be executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import torch

from policies.hooks import DenoiseHook, DenoiseState
from robot_rl.guide.values import ChunkValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from policies.context import Context
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest

Gradient = Literal["clean", "network"]


class CriticGuidance(DenoiseHook):
    """Moves the clean estimate along the gradient of the least value of an ensemble, in the last steps.

    The move has the same size in every step and row, whatever the scale of the values: `eta` is its root mean
    square in the normalised action space. Costs one backward pass of the critic per guided step, and with
    ``gradient="network"`` one of the policy.

    Args:
        values: the critic and what it reads.
        eta: size of the move; 0 leaves the base to the bit.
        guided_steps: number of last denoising steps that are guided.
        gradient: "clean": with respect to the clean estimate, the network detached; "network": back through
            the network to the noisy chunk.

    Raises:
        ValueError: if a value is out of range.
    """

    order = 40

    def __init__(
        self, values: ChunkValues, *, eta: float = 0.05, guided_steps: int = 3, gradient: Gradient = "clean"
    ) -> None:
        if not 0 <= eta < float("inf") or guided_steps < 1:
            raise ValueError(f"eta is {eta} and guided_steps {guided_steps}; they must be at least 0 and 1.")
        if gradient not in get_args(Gradient):
            raise ValueError(f"gradient is {gradient!r}; allowed: {', '.join(get_args(Gradient))}.")
        self.values, self.eta, self.guided_steps, self.gradient = values, eta, guided_steps, gradient
        self.keys = values.texts.keys
        self._latent = torch.empty(0)
        self._policy: ChunkPolicy | None = None
        self._steps = 0
        self._value = torch.empty(0)

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Read the observation as the policy encoded it."""
        self._latent = self.values.read(request.observation, context)
        self._policy, self._steps = policy, len(policy.sigmas()) - 1

    def needs_grad(self, index: int) -> bool:
        """With ``gradient="network"``, in guided steps."""
        return self.gradient == "network" and self._acts(index)

    def _acts(self, index: int) -> bool:
        return self.eta > 0 and index >= self._steps - self.guided_steps

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Move the clean estimate by eta along the gradient: v' = v - move / sigma."""
        if not self._acts(state.index):
            return state.x, state.velocity
        with torch.enable_grad():
            clean = state.clean
            if self.gradient == "clean":
                clean = clean.detach().requires_grad_(True)
            value = self.values.least(
                state.policy.spec, self._latent, state.policy.decode(clean, state.context)
            )
            source = clean if self.gradient == "clean" else state.leaf
            assert source is not None, "asked for by needs_grad"
            (slope,) = torch.autograd.grad(value.sum(), source, retain_graph=True)
        size = slope.square().mean((1, 2), keepdim=True).sqrt()
        # A critic that sees no slope says nothing, not "anywhere".
        move = torch.where(size > 0, self.eta * slope / size.clamp(min=1e-20), torch.zeros_like(slope))
        return state.x, state.velocity - move / state.sigma

    def end_chunk(self, chunk: Float[Tensor, "B H A"] | None) -> None:
        """Value the chunk that came out."""
        if chunk is not None and self._policy is not None:
            with torch.no_grad():
                self._value = self.values.least(self._policy.spec, self._latent, chunk)

    def info(self) -> Mapping[str, Float[Tensor, " B"]]:
        """Value of each row's chunk."""
        return {"critic.value": self._value} if len(self._value) else {}

    def payload(self) -> dict[str, Any]:
        """Configuration of hook and critic."""
        return {
            "values": self.values.payload(),
            "eta": self.eta,
            "guided_steps": self.guided_steps,
            "gradient": self.gradient,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Of the critic."""
        return self.values.tensors()

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild it; see `robot_rl.parts.SavedPart`."""
        rest = {key: value for key, value in payload.items() if key != "values"}
        return cls(ChunkValues.from_payload(payload["values"], tensors), **rest)
