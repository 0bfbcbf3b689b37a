"""Q(s, A): what the executed part of a chunk is worth, by an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from robot_rl.critics.action_unit import ActionUnit
from robot_rl.critics.ensemble import CriticEnsemble

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


class ChunkCritic(nn.Module):
    """K values of a latent and the actions that a chunk executes; differentiable in the actions.

    Args:
        size: D, of the latent.
        steps: L, executed steps of a chunk.
        actions: A.
        critics: K.
        width: units of a hidden layer.
    """

    def __init__(self, size: int, steps: int, actions: int, *, critics: int, width: int) -> None:
        super().__init__()
        self.sizes = {"size": size, "steps": steps, "actions": actions, "critics": critics, "width": width}
        self.unit = ActionUnit(actions)
        self.ensemble = CriticEnsemble(size, steps * actions, critics, width)

    def forward(self, latent: Float[Tensor, "B D"], executed: Float[Tensor, "B L A"]) -> Float[Tensor, "K B"]:
        """Return the values.

        Args:
            latent: in units of spread.
            executed: robot units.
        """
        values: Tensor = self.ensemble(latent, self.unit(executed))
        return values

    def least(self, latent: Float[Tensor, "B D"], executed: Float[Tensor, "B L A"]) -> Float[Tensor, " B"]:
        """Return the least of the K values: what no member doubts."""
        least: Tensor = self(latent, executed).amin(0)
        return least
