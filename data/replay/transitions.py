"""The transitions of a replay as numbers: where each begins and ends, and what it is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data.replay.storage import put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from data.replay.intake import Intake

_NAMES = ("whole", "real", "flags")


class Transitions:
    """Rings of up to `capacity` transitions, counted from the replay's beginning.

    Args:
        capacity: Transitions there is room for; as many as the replay has rows.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._whole = np.zeros((5, capacity), np.int64)
        self._real = np.zeros((2, capacity), np.float32)
        self._flags = np.zeros((2, capacity), bool)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._whole.nbytes + self._real.nbytes + self._flags.nbytes

    def put(self, number: int, rows: int, intake: Intake) -> None:
        """Take in transitions.

        Args:
            number: Of the first one.
            rows: Rows that came into the replay before those of these episodes.
            intake: Their numbers, with rows counted from these episodes' first one.
        """
        whole = intake.whole
        whole[:2] = (whole[:2] + rows) % self.capacity
        for ring, values in ((self._whole, whole), (self._real, intake.real), (self._flags, intake.flags)):
            put(ring.T, number % self.capacity, values.T)

    def take(
        self, numbers: NDArray[np.int64], first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """The transitions of some numbers, (B,), the oldest one held being `first`.

        Returns:
            As in `Intake`, (5, B), (2, B) and (2, B), with rows as they lie in their rings.
        """
        # Numbers go on for ever and slots wrap: shifted to lie within two rounds, `wrap` folds them to one.
        slots = numbers - (first - first % self.capacity)
        return (
            self._whole.take(slots, 1, None, "wrap"),
            self._real.take(slots, 1, None, "wrap"),
            self._flags.take(slots, 1, None, "wrap"),
        )

    def arrays(self, used: int) -> dict[str, NDArray[np.generic]]:
        """What the first `used` slots hold, by name; not copied."""
        return {name: getattr(self, f"_{name}")[:, :used] for name in _NAMES}

    def load(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go back to what `arrays` gave."""
        for name in _NAMES:
            getattr(self, f"_{name}")[:, : arrays[name].shape[1]] = arrays[name]
