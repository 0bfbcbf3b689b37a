"""Samples that came at a rate of their own, with the times at which they were taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.errors import LengthError
from data.features import Feature
from data.steps import frozen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Stream:
    """N samples of one sensor, as measured: never moved onto a nominal rate, gaps and repeats included.

    Arrays are read-only copies.

    Attributes:
        times: (N,), monotonic s, the clock of the steps; in the order of arrival, which a bad driver may
            not keep sorted.
        wall_times: (N,), s since 1970-01-01 UTC.
        values: (N, ...).
        feature: What one sample is; None where nobody said.

    Raises:
        LengthError: The lengths differ.
        ValueError: The samples are not what the feature says.
        TypeError: The values are Python objects.
    """

    times: NDArray[np.float64]
    wall_times: NDArray[np.float64]
    values: NDArray[Any]
    feature: Feature | None = None

    def __post_init__(self) -> None:
        """Copy, freeze and check the arrays."""
        put = object.__setattr__
        put(self, "times", frozen(self.times, "float64"))
        put(self, "wall_times", frozen(self.wall_times, "float64"))
        put(self, "values", frozen(self.values))
        if self.values.dtype.hasobject:
            raise TypeError("A stream holds Python objects; only plain numbers are kept.")
        if self.times.ndim != 1 or not self.times.shape == self.wall_times.shape == self.values.shape[:1]:
            raise LengthError(
                f"A stream has times {self.times.shape}, wall_times {self.wall_times.shape} and values "
                f"{self.values.shape}; (N,), (N,) and (N, ...) are needed."
            )
        form = (self.values.shape[1:], self.values.dtype.name)
        if self.feature is not None and form != (self.feature.shape, self.feature.dtype):
            raise ValueError(
                f"A stream holds {form[1]}{form[0]}, but its feature says "
                f"{self.feature.dtype}{self.feature.shape}."
            )

    def __len__(self) -> int:
        """Number of samples N."""
        return int(self.times.shape[0])

    def latest_before(self, t: ArrayLike) -> NDArray[np.int64]:
        """Index of the newest sample that was there at each moment; never one from its future.

        Args:
            t: (T,) or one moment, monotonic s.

        Returns:
            Like `t`: where the greatest time <= t stands, the last of several equal ones; -1 where no
            sample was there yet.

        Raises:
            ValueError: A moment is NaN.
        """
        moments = np.asarray(t, np.float64)
        if np.isnan(moments).any():
            raise ValueError("latest_before was asked about a moment that is NaN; give monotonic seconds.")
        order = np.argsort(self.times, kind="stable")
        place = np.searchsorted(self.times[order], moments, side="right") - 1
        return np.where(place < 0, -1, np.append(order, -1)[place]).astype(np.int64)

    def at(self, t: ArrayLike) -> NDArray[Any]:
        """The newest sample that was there at each moment.

        Args:
            t: (T,) or one moment, monotonic s.

        Returns:
            (T, ...), or one sample for one moment.

        Raises:
            ValueError: There was no sample yet at some moment, or it is NaN.
        """
        index = self.latest_before(t)
        if (index < 0).any():
            early = float(np.asarray(t, np.float64)[index < 0].min())
            first = f"the first came at {np.nanmin(self.times):.6f} s" if len(self) else "it has none"
            raise ValueError(f"No sample was there yet at {early:.6f} s: {first}. Start the sensor earlier.")
        found: NDArray[Any] = self.values[index]
        return found
