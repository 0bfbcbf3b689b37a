"""Cross-correlation of commands and motions, as sums that add up over episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

_OVERLAP = 0.6
"""Share of the rows that command and motion must have in common at a lag, lest a few rows decide."""


@dataclass(frozen=True)
class Lag:
    """How far the motion is behind the action.

    Attributes:
        steps: Lag with the highest correlation; negative when the motion comes first.
        correlation: Mean over the action's dimensions at that lag.
        plausible: Highest one among the lags that a robot can have.
        curve: Correlation at every lag.
    """

    steps: int
    correlation: float
    plausible: float
    curve: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Correlation:
    """Sums that a lag is found from, each by lag from -L to L; those of several episodes add up.

    All sums of a lag go over the rows that command and motion have in common there, so that no correlation
    exceeds 1 (Cauchy-Schwarz).

    Attributes:
        products: (2 L + 1, A, S), of centred commands and motions.
        command: (2 L + 1, A), squares.
        motion: (2 L + 1, S), squares.
        shares: (2 L + 1,), rows in common.
        steps: Rows.
    """

    products: NDArray[np.float64]
    command: NDArray[np.float64]
    motion: NDArray[np.float64]
    shares: NDArray[np.float64]
    steps: int

    @classmethod
    def of(cls, command: NDArray[np.float64], motion: NDArray[np.float64], lags: int) -> Self:
        """Sums of one episode.

        Args:
            command: (T, A).
            motion: (T, S), the change of the state in each step.
            lags: L.
        """
        u, r = _centred(command), _centred(motion)
        count = len(u)
        both = [
            (u[: count - lag], r[lag:]) if lag >= 0 else (u[-lag:], r[: count + lag])
            for lag in range(-lags, lags + 1)
        ]
        return cls(
            products=np.stack([a.T @ b for a, b in both]),
            command=np.stack([(a**2).sum(0) for a, _ in both]),
            motion=np.stack([(b**2).sum(0) for _, b in both]),
            shares=np.array([len(a) for a, _ in both], float),
            steps=count,
        )

    def __add__(self, other: Correlation) -> Correlation:
        """The sums of both."""
        return Correlation(
            self.products + other.products,
            self.command + other.command,
            self.motion + other.motion,
            self.shares + other.shares,
            self.steps + other.steps,
        )

    def padded(self, lags: int) -> Correlation:
        """Zeros at the lags that an episode is too short for, up to `lags`, so that all can be added."""
        more = lags - len(self.shares) // 2

        def wider(sums: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.pad(sums, ((more, more), *[(0, 0)] * (sums.ndim - 1)))

        products, command, motion, shares = map(
            wider, (self.products, self.command, self.motion, self.shares)
        )
        return Correlation(products, command, motion, shares, self.steps)

    def lag(self, *, paired: bool, plausible: int) -> Lag | None:
        """The lag, or None where nothing moved.

        Args:
            paired: Whether dimension i of the action moves that of the state; else the best one is taken.
            plausible: Greatest lag that a robot can have, in steps.
        """
        enough = np.flatnonzero(self.shares >= _OVERLAP * self.steps)
        whole = len(self.shares) // 2  # at lag 0 all rows are in common
        moving = np.flatnonzero(self.command[whole] > 0)
        if not len(moving) or not (self.motion[whole] > 0).any():
            return None
        power = np.sqrt(self.command[enough][:, :, None] * self.motion[enough][:, None, :])
        values = np.divide(self.products[enough], power, out=np.zeros_like(power), where=power > 0)
        partner = moving if paired else np.abs(values).max(0)[moving].argmax(1)
        curves = values[:, moving, partner]
        signs = np.sign(curves[np.abs(curves).argmax(0), np.arange(len(moving))])
        score = (curves * signs).mean(1)
        lags = enough - whole
        possible = score[(lags >= 0) & (lags <= plausible)]
        best = int(score.argmax())
        curve = dict(zip(lags.tolist(), score.tolist(), strict=True))
        return Lag(int(lags[best]), float(score[best]), float(possible.max()), curve)


def _centred(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deviation from the mean, its rare extremes cut off: one jump must not outweigh all other rows."""
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    limited = np.clip(rows, low, high)
    return np.asarray(limited - limited.mean(0))
