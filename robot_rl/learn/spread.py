"""Mean and spread of what a network reads, as the first episodes show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean_and_spread(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return mean and standard deviation of each dimension, both (D,).

    The deviation is floored: a dimension that hardly moved must not explode when it first does.

    Args:
        rows: (N, D).
    """
    floor = np.maximum(1e-3 * np.abs(rows).max(0), 1e-6)
    return rows.mean(0), np.maximum(rows.std(0), floor)
