"""The unit in which a critic reads chunks of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robot_rl.learn.spread import mean_and_spread

if TYPE_CHECKING:
    import numpy as np
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
        for mine, found in zip((self.mean, self.std), mean_and_spread(actions), strict=True):
            mine.copy_(torch.from_numpy(found))

    def forward(self, chunk: Float[Tensor, "B L A"]) -> Float[Tensor, "B F"]:
        """Chunks in robot units as a critic reads them."""
        return ((chunk - self.mean) / self.std).flatten(1)
