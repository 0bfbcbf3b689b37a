"""Scripted peg insertion: an expert who knows the hole, and a straight policy that trusts the estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.env import expert_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.peg_insert import PegInsert

_HOVER_M = 0.006
_STEP_M = 0.0025
_JAM_N = 9.0


class PegExpert:
    """Approach, align, insert; with its own pace, pauses and a wandering aim; lifts when jammed.

    Args:
        env: the running environment; its true state is read.
        seed: seed of the noise.
        trust_estimate: aim at the camera-like estimate instead of the true hole.
        noise: 1 for human-like noise, 0 for none.
    """

    def __init__(
        self, env: PegInsert, seed: int, *, trust_estimate: bool = False, noise: float = 1.0
    ) -> None:
        self._env = env
        self._rng = expert_generator(seed)
        self._goal = env.estimate if trust_estimate else env.hole
        self._noise = noise
        self._pace = _STEP_M * (1.0 + noise * self._rng.uniform(-0.25, 0.35))
        self._aim: NDArray[np.float64] = np.zeros(3)
        self._pause = 0
        self._lift = 0
        self._jammed = 0
        self._recovers = not trust_estimate

    def act(self) -> NDArray[np.float64]:
        """Return the change of the target (3,) in m, base frame."""
        if self._pause > 0:
            self._pause -= 1
            return self._noise * self._rng.normal(0.0, 1e-4, 3)
        if self._rng.random() < 0.02 * self._noise:
            self._pause = int(self._rng.integers(2, 6))
        self._aim = 0.8 * self._aim + self._noise * self._rng.normal(0.0, [1.2e-4, 1.2e-4, 0.0])
        error = self._goal + self._aim - self._env.tool_position
        sideways = float(np.linalg.norm(error[:2]))
        waypoint = error.copy()
        if self._recovering():
            waypoint[2] = self._pace
        elif sideways > 0.0015 and error[2] < -_HOVER_M / 2:
            waypoint[2] += _HOVER_M
        elif sideways > 0.0005 and -_HOVER_M / 2 <= error[2] < 0.001:
            waypoint[2] = 0.0
        else:
            waypoint[2] = -self._pace
        pace = self._pace if abs(error[2]) > 0.5 * _HOVER_M or error[2] > 0 else 0.5 * self._pace
        step = waypoint * min(1.0, pace / max(float(np.linalg.norm(waypoint)), 1e-9))
        jitter = self._noise * self._rng.normal(0.0, 1.5e-4, 3)
        return step - self._spare(step) + jitter

    def _spare(self, step: NDArray[np.float64]) -> NDArray[np.float64]:
        """The part of the target's lead to take back: all sideways, downwards what exceeds a light push."""
        lead = self._env.lead.copy()
        lead[2] = min(0.0, lead[2] + 0.0008) if step[2] < 0 else lead[2]
        return lead

    def _recovering(self) -> bool:
        """Lift for some steps after the push has been above the jam force for a while outside the hole."""
        if not self._recovers:
            return False
        self._jammed = self._jammed + 1 if self._env.contact_force_n > _JAM_N else 0
        if self._jammed >= 4:
            self._jammed, self._lift = 0, 3
        self._lift = max(0, self._lift - 1)
        return self._lift > 0
