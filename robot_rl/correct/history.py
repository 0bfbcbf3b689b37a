"""The recent past of each row: observations and corrections, as correctors and replay read them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


def require_keys(
    observation: Mapping[str, object], keys: Iterable[str], *, who: str = "The corrector"
) -> None:
    """Refuse an observation that lacks a key which a part of the refiner reads.

    Raises:
        ValueError: It does; names what is missing and what there is.
    """
    if missing := [key for key in keys if key not in observation]:
        raise ValueError(
            f"{who} reads {missing}, which the robot does not give; it gives {sorted(observation)}."
        )


class History:
    """Keeps the last `length` steps of B rows that advance together.

    Before the first step the first observation repeats and corrections are zero: nothing had been corrected.

    Args:
        keys: Observation keys to keep.
        length: Past steps to keep.
        action_size: A.
    """

    def __init__(self, keys: Sequence[str], length: int, action_size: int) -> None:
        self._keys = tuple(keys)
        self._observations: deque[dict[str, NDArray[Any]]] = deque(maxlen=length + 1)
        self._corrections: deque[NDArray[np.float64]] = deque(maxlen=max(length, 1))
        self._action_size = action_size
        self._rows = 0
        self.length = length

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """Take the present observation, each value (B, ...).

        Raises:
            ValueError: It lacks a key that is kept.
        """
        require_keys(observation, self._keys)
        self._rows = len(next(iter(observation.values())))
        self._observations.append({key: np.array(observation[key]) for key in self._keys})

    def act(self, correction: NDArray[np.float64]) -> None:
        """Take the executed minus the base action of the present step, (B, A), robot units."""
        self._corrections.append(np.array(correction, np.float64))

    def observation(self, key: str, offset: int) -> NDArray[Any]:
        """Observation `offset` steps ago, (B, ...); the first one where the episode is younger than that."""
        self._check(offset, 0)
        return self._observations[max(len(self._observations) - 1 - offset, 0)][key]

    def correction(self, offset: int) -> NDArray[np.float64]:
        """Correction executed `offset` >= 1 steps ago, (B, A); zero before the first step."""
        self._check(offset, 1)
        if offset > len(self._corrections):
            return np.zeros((self._rows, self._action_size))
        return self._corrections[-offset]

    def _check(self, offset: int, least: int) -> None:
        if not least <= offset <= max(self.length, least):
            raise ValueError(f"History offset {offset} is not kept; {least} .. {self.length} are.")
