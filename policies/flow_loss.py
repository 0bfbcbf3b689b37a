"""The conditional flow-matching loss, shared by every trainable flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from policies.context import Context
    from policies.policy import PolicySpec
    from policies.request import ActionBatch, Condition, Observation


class Flow(Protocol):
    """What the loss needs of a policy."""

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        ...

    def encode(self, observation: Observation, condition: Condition = None) -> Context:
        """Encode the observation."""
        ...

    def encode_action(self, action: Tensor, context: Context) -> Tensor:
        """Return actions in the space of x."""
        ...

    def velocity(self, x: Tensor, sigma: Tensor, context: Context) -> Tensor:
        """Return the velocity at x."""
        ...

    def draw_sigma(self, rows: int) -> Tensor:
        """Draw training noise levels."""
        ...


def matching_loss(
    policy: Flow,
    batch: ActionBatch,
    *,
    noise: Float[Tensor, "B H Z"] | None = None,
    sigma: Float[Tensor, " B"] | Float[Tensor, "B H"] | None = None,
    weights: Float[Tensor, " B"] | None = None,
    mask: Tensor | None = None,
) -> Float[Tensor, " B"]:
    """Return the loss per row; see `policies.policy.TrainablePolicy.flow_loss` for the arguments.

    The target is the velocity of the straight path, eps - a (Lipman et al. 2023, eq. 23 with sigma_min = 0).
    """
    context = policy.encode(batch.observation, batch.condition)
    with torch.no_grad():
        clean = policy.encode_action(batch.action, context)
    rows = clean.shape[0]
    if noise is None:
        noise = torch.randn(clean.shape).to(clean.device)
    level = policy.draw_sigma(rows) if sigma is None else sigma
    spread = level[:, None, None] if level.ndim == 1 else level[:, :, None]
    x = (1 - spread) * clean + spread * noise
    error = (policy.velocity(x, level, context) - (noise - clean)).square().mean(dim=2)
    valid = _valid(batch.mask, mask, error)
    loss = (error * valid).sum(dim=1) / valid.sum(dim=1).clamp(min=1)
    return loss if weights is None else loss * weights.to(loss.device)


def _valid(first: Tensor | None, second: Tensor | None, like: Tensor) -> Tensor:
    valid = torch.ones_like(like)
    for mask in (first, second):
        if mask is not None:
            if mask.shape != like.shape:
                raise ValueError(f"mask has shape {tuple(mask.shape)}; expected {tuple(like.shape)}")
            valid = valid * mask.to(like.device)
    return valid


def draw_sigma(
    rows: int, law: Literal["uniform", "beta"], generator: torch.Generator | None = None
) -> Float[Tensor, " B"]:
    """Draw noise levels.

    Args:
        rows: B.
        law: see `policies.flow_config.FlowConfig.sigma_sampling`.
        generator: on the CPU; None: torch's global one.
    """
    uniform = torch.rand(rows, generator=generator)
    # Beta(1.5, 1) has the distribution function s^1.5, so its inverse is u^(2/3).
    return uniform if law == "uniform" else uniform ** (2 / 3)


def drop_conditions(batch: ActionBatch, share: float) -> ActionBatch:
    """Return the batch with the conditions of a random share of rows hidden.

    Args:
        batch: with any condition.
        share: probability for each row, drawn from torch's global generator.
    """
    if share == 0 or batch.condition is None:
        return batch
    rows = batch.action.shape[0]
    names = [batch.condition] * rows if isinstance(batch.condition, str) else list(batch.condition)
    kept = [None if hide else name for name, hide in zip(names, torch.rand(rows) < share, strict=True)]
    return replace(batch, condition=kept)
