"""A tree of partial sums: draw in proportion to priorities in logarithmic time, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SumTree:
    """Priorities of a number of slots, all 0 at first.

    Node 1 is the root, node i has the children 2 i and 2 i + 1, and the last level holds the slots. Sums are
    computed anew from their children on every change, so that no rounding piles up.

    Args:
        slots: How many.
    """

    def __init__(self, slots: int) -> None:
        self._levels = max(1, int(slots - 1).bit_length())
        self._first = 1 << self._levels
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._sums[1])

    def get(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Priorities of slots, of their shape."""
        return np.asarray(self._sums[self._first + slots])

    def set(self, slots: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> None:
        """Change priorities, at least 0; of a slot named twice the last one counts."""
        nodes = self._first + slots
        self._sums[nodes] = priorities
        for _ in range(self._levels):
            nodes = np.unique(nodes >> 1)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def find(self, amounts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Slots in which running sums reach amounts, never one of priority 0.

        Args:
            amounts: 0 <= amount < total, of any shape; the total must be above 0.
        """
        left = amounts.copy()
        nodes = np.ones(amounts.shape, np.int64)
        for _ in range(self._levels):
            nodes *= 2
            below = self._sums[nodes]
            right = (left >= below) & (self._sums[nodes + 1] > 0)
            left -= np.where(right, below, 0.0)
            nodes += right
        return nodes - self._first

    def state(self) -> NDArray[np.float64]:
        """The priorities of all slots, copied."""
        return self._sums[self._first :].copy()

    def load_state(self, priorities: NDArray[np.float64]) -> None:
        """Go back to what `state` gave."""
        self.set(np.arange(len(priorities)), priorities)
