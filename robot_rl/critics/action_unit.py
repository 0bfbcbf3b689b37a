"""The unit in which a critic reads chunks of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import NDArray


class ActionUnit(nn.Module):
    """Actions in standard deviations of those first seen, flat; part of the learner's state.

    Args:
        actions: A.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(actions))
        self.register_buffer("std", torch.zeros(actions))

    @property
    def known(self) -> bool:
        """Whether it was fitted."""
        return bool(self.std.any())

    def fit(self, actions: NDArray[np.float64]) -> None:
        """Take mean and spread of actions, (T, A), robot units."""
        floor = np.maximum(1e-3 * np.abs(actions).max(0), 1e-6)
        self.mean.copy_(torch.from_numpy(actions.mean(0)))
        self.std.copy_(torch.from_numpy(np.maximum(actions.std(0), floor)))

    def forward(self, chunk: Float[Tensor, "B L A"]) -> Float[Tensor, "B F"]:
        """Chunks in robot units as a critic reads them."""
        return ((chunk - self.mean) / self.std).flatten(1)
