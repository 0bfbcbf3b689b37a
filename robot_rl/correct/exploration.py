"""Correlated random corrections, for base rollouts that look around before anything is learned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from robot_rl.correct.corrector import Correction, Corrector, CorrectorInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hardware.action_spec import ActionSpec


class CorrelatedNoise(Corrector):
    """Adds first-order autoregressive noise: consecutive corrections push the same way, so the robot moves.

    The noise of a step follows from the correction executed a step before, so rows stay stateless.

    Args:
        scale: Greatest correction per dimension, (A,), robot units.
        spread: Standard deviation, as a share of `scale`.
        memory: Correlation of consecutive steps, 0 .. 1.
    """

    history_length = 1

    def __init__(self, scale: NDArray[np.float64], spread: float = 0.4, memory: float = 0.8) -> None:
        self._scale = np.array(scale, np.float64)
        self._spread, self._memory = spread, memory

    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Add noise to the base action; see `Corrector.correct`."""
        base = request.base_action
        if request.deterministic:
            return Correction(base, info={"residual": np.zeros_like(base)})
        fresh = np.stack([generator.standard_normal(base.shape[1]) for generator in request.generators])
        free = self._scale > 0
        before = np.divide(request.history.correction(1), self._scale, out=np.zeros_like(base), where=free)
        residual = self._memory * before + math.sqrt(1 - self._memory**2) * self._spread * fresh
        residual = np.where(free, residual.clip(-1, 1), 0.0)
        return Correction(base + gain * self._scale * residual, info={"residual": residual})


def reach(actions: NDArray[np.float64], spec: ActionSpec) -> NDArray[np.float64]:
    """How far a base goes along each dimension of its action.

    Of absolute targets half the range between the 1 % and the 99 % quantile. Of deltas the greater of the two
    quantiles' sizes: a base that only ever moves down spans a small range, and a correction that could not
    cancel it could not stop the robot. Zero for grippers, which are left alone.

    Args:
        actions: the base's, (T, A), robot units.
        spec: what they mean.

    Returns:
        (A,), robot units.
    """
    low, high = np.quantile(actions, [0.01, 0.99], axis=0)
    found: NDArray[np.float64] = (high - low) / 2
    for group in spec.groups:
        at = spec.slice(group.name)
        if group.kind == "gripper":
            found[at] = 0.0
        elif group.mode == "delta":
            found[at] = np.maximum(np.abs(low[at]), np.abs(high[at]))
    return found
