"""The best constant offset: a corrector that cannot see. What it gains, a refinement need not feel for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from robot_rl.correct.corrector import Correction, Corrector, CorrectorInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike
    from torch import Tensor


class ConstantOffset(Corrector):
    """Adds the same amount to every action.

    Args:
        offset: (A,), robot units.
    """

    def __init__(self, offset: ArrayLike) -> None:
        self.offset = np.array(offset, np.float64)
        if self.offset.ndim != 1 or not np.isfinite(self.offset).all():
            raise ValueError(f"offset is {self.offset}; give one finite number per action dimension.")

    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Correct the base actions of one step; see `Corrector.correct`."""
        base = request.base_action
        if base.shape[1:] != self.offset.shape:
            raise ValueError(
                f"The offset has {len(self.offset)} dimensions, the base's actions {base.shape[1]}."
            )
        return Correction(base + gain * self.offset)

    def payload(self) -> dict[str, Any]:
        """Nothing beside the tensor."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """The offset."""
        return {"offset": torch.from_numpy(self.offset.copy())}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a saved corrector."""
        del payload
        return cls(tensors["offset"].numpy(force=True))
