"""Real-time chunking: a new chunk that joins the one still in execution without a jump.

Black, Galliker, Levine 2025 (arXiv 2506.07339): while a chunk is computed the robot goes on with the old one,
so the new chunk must agree with what is executed meanwhile, and should not turn sharply after it. The old
chunk is in-painted into the new one during the denoising, with weights that fall off along the chunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import torch
from torch import Tensor

from data.config import from_dict, to_dict
from policies.hooks import DenoiseHook, DenoiseState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float, Int

    from policies.context import Context
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest

Schedule = Literal["exponential", "linear", "ones", "zeros"]
Gradient = Literal["identity", "network"]


@dataclass(frozen=True)
class RealTimeConfig:
    """How a new chunk is held to the old one."""

    gradient: Gradient = "identity"
    """identity: the correction is the error itself, one network call a step; network: it is carried back
    through the network as in the paper, with one backward pass more"""
    schedule: Schedule = "exponential"
    """how the weights fall off between the steps that are certain to be executed and the old chunk's end"""
    max_weight: float = 0.0
    """greatest guidance weight; 0 takes the number of denoising steps"""
    hard: bool = True
    """whether the actions that will be executed meanwhile become those of the old chunk exactly"""

    def __post_init__(self) -> None:
        """Check the values."""
        for name, kind in (("gradient", Gradient), ("schedule", Schedule)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(get_args(kind))}.")
        if not 0 <= self.max_weight < float("inf"):
            raise ValueError(f"max_weight is {self.max_weight}; a number from 0 is needed.")


class RealTimeChunking(DenoiseHook):
    """Guides the denoising towards what is left of the previous chunk.

    Rows whose previous chunk has nothing left, or that have none, are denoised as without the hook. Costs no
    network call; with ``gradient="network"`` one backward pass per step.

    Deviations from the paper: the greatest weight is the number of steps (the paper's 5 is its number of
    steps); "identity" leaves out the Jacobian, as other implementations do without saying; and with `hard`
    the steps that are executed meanwhile are replaced in the denoising itself, which neither form achieves.

    Args:
        config: see `RealTimeConfig`.
    """

    order = 100
    """Last of all hooks, so that the steps which will be executed meanwhile win."""

    def __init__(self, config: RealTimeConfig | None = None) -> None:
        self.config = config or RealTimeConfig()
        self._target: Tensor | None = None
        self._weights: Tensor | None = None
        self._frozen: Tensor | None = None

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Take over what is left of the previous chunk, in the space of the new one's x."""
        self._target = self._weights = self._frozen = None
        if request.previous_chunk is None or request.consumed is None:
            return
        spec = policy.spec
        device = policy.device
        consumed = request.consumed.to(device)
        delay = torch.zeros_like(consumed) if request.delay is None else request.delay.to(device)
        frozen = torch.where(consumed < spec.horizon, spec.first_action + delay, 0)
        weights = prefix_weights(frozen, spec.horizon - consumed, spec.horizon, self.config.schedule)
        if not weights.any():
            return
        left = shifted(request.previous_chunk.to(device), consumed)
        self._target = policy.encode_action(left, context).detach()
        # Padded dimensions mean nothing, so nothing is known of them.
        known = torch.arange(spec.noise_shape[1], device=device) < spec.action_size
        self._weights = weights[..., None] * known
        end = (spec.horizon - consumed).clamp(min=0)
        position = torch.arange(spec.horizon, device=device)
        self._frozen = ((position < torch.minimum(frozen, end)[:, None])[..., None] & known).expand_as(
            self._target
        )

    def needs_grad(self, index: int) -> bool:
        """With ``gradient="network"``, whenever there is something to join."""
        del index
        return self._target is not None and self.config.gradient == "network"

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Add the correction of the paper's equations 2 to 4; nothing where there is no old chunk."""
        if self._target is None or self._weights is None or self._frozen is None:
            return state.x, state.velocity
        error = (self._target - state.clean).detach() * self._weights
        if self.config.gradient == "network":
            assert state.leaf is not None, "asked for by needs_grad"
            (error,) = torch.autograd.grad(state.clean, state.leaf, error, retain_graph=True)
        weight = guidance_weight(state.sigma, self.config.max_weight or float(state.steps))
        velocity = torch.sub(state.velocity, error, alpha=weight)  # to the bit where the weights are zero
        if self.config.hard:
            # The velocity whose clean estimate is the target: x - sigma v = target.
            velocity = torch.where(self._frozen, (state.x - self._target) / state.sigma, velocity)
        return state.x, velocity

    def end_chunk(self, chunk: Float[Tensor, "B H A"] | None) -> None:
        """Forget the old chunk."""
        del chunk
        self._target = self._weights = self._frozen = None

    def payload(self) -> dict[str, Any]:
        """Configuration."""
        payload: dict[str, Any] = to_dict(self.config)
        return payload

    def tensors(self) -> dict[str, Tensor]:
        """None: nothing is trained."""
        return {}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild it."""
        del tensors
        return cls(from_dict(RealTimeConfig, payload))


def prefix_weights(
    frozen: Int[Tensor, " B"], end: Int[Tensor, " B"], horizon: int, schedule: Schedule
) -> Float[Tensor, "B H"]:
    """Return how strongly each position is held to the old chunk (the paper's equation 5).

    Args:
        frozen: positions that are certain to be executed, from the chunk's start: weight 1.
        end: position from which the old chunk has nothing left: weight 0, whatever `frozen` says.
        horizon: H.
        schedule: of the positions between.
    """
    position = torch.arange(horizon, device=frozen.device)[None]
    first, last = frozen[:, None], end[:, None]
    # c falls linearly from 1 at the last frozen position to 0 at the end.
    fall = ((last - position) / (last - first + 1).clamp(min=1)).clamp(0.0, 1.0)
    if schedule == "exponential":
        fall = fall * torch.expm1(fall) / math.expm1(1.0)
    elif schedule != "linear":
        fall = torch.full_like(fall, float(schedule == "ones"))
    return torch.where(position < first, 1.0, fall) * (position < last)


def guidance_weight(sigma: float, greatest: float) -> float:
    """Return the paper's w at a noise level: min(greatest, (t^2 + (1-t)^2) / (t (1-t))) with t = 1 - sigma.

    Args:
        sigma: in (0, 1]; 1 is pure noise.
        greatest: the paper's beta.
    """
    t = 1.0 - sigma
    if t <= 0.0:
        return greatest
    return min(greatest, (t * t + sigma * sigma) / (t * sigma))


def shifted(chunk: Float[Tensor, "B H A"], consumed: Int[Tensor, " B"]) -> Float[Tensor, "B H A"]:
    """Return each row's chunk without the steps that were executed; its last action fills the end.

    Args:
        chunk: the previous chunk.
        consumed: control steps of it that were executed, per row.
    """
    position = torch.arange(chunk.shape[1], device=chunk.device)[None] + consumed[:, None]
    index = position.clamp(max=chunk.shape[1] - 1)[..., None].expand(-1, -1, chunk.shape[2])
    return chunk.gather(1, index)
