"""Scripted picking of robosuite's can, with human-like noise and a second try after a lost grasp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hardware.rotations import from_matrix
from sim.frame import expert_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.robosuite_can import RobosuiteCan

_TRAVEL_M = 1.06  # height over which nothing stands, the can in hand
_HOVER_M = 0.1
_RELEASE_M = 0.08
_LOST_M = 0.06
_NEARER_M = np.array(
    [-0.045, -0.06]
)  # from the middle of the can's place, which is at the end of the arm's reach
_GAIN = 20.0  # of the action per m that is missing: the target is where the tool should be
_TURN = 1.0
_CLOSE_STEPS, _OPEN_STEPS = 8, 3
_DOWN = np.array(
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]
)  # as an episode begins: far from joint limits
_NEXT = {
    "above": "down",
    "down": "close",
    "close": "lift",
    "lift": "carry",
    "carry": "lower",
    "lower": "open",
    "open": "leave",
    "leave": "leave",
}


class CanExpert:
    """Goes above the can, down, grasps, lifts, carries it over its place, lowers, lets go and leaves.

    Its pace differs between episodes and its aim wanders by about a millimetre. If the can is no longer
    between the fingers while it carries, it starts over.

    Args:
        env: the running environment; its true state is read.
        seed: seed of the noise.
    """

    def __init__(self, env: RobosuiteCan, seed: int) -> None:
        self._env = env
        self._generator = expert_generator(seed)
        self._pace = self._generator.uniform(0.6, 0.9)
        self._phase = "above"
        self._waited = 0
        self._aim: NDArray[np.float64] = np.zeros(3)
        self._place = _NEARER_M + self._generator.uniform(-0.02, 0.02, 2)

    def act(self) -> NDArray[np.float64]:
        """Return the next action (7,): position, rotation, gripper, each -1 to 1."""
        env = self._env
        if self._phase in ("lift", "carry", "lower") and np.linalg.norm(env.can - env.tool) > _LOST_M:
            self._phase = "above"
        goal, tolerance = self._goal()
        self._aim = 0.9 * self._aim + self._generator.normal(0.0, 4e-4, 3)
        error = goal + self._aim - env.tool
        if self._done(np.abs(error), tolerance):
            self._phase, self._waited = _NEXT[self._phase], 0
        self._waited += 1
        closing = 1.0 if self._phase in ("close", "lift", "carry", "lower") else -1.0
        move = _GAIN * error
        move *= min(1.0, self._pace / max(float(np.abs(move).max()), 1e-9))
        turn = _TURN * from_matrix(_DOWN @ env.tool_rotation.T, "rotvec") / 0.5
        action = np.concatenate([move, turn])
        return np.append(np.clip(action + self._generator.normal(0.0, 0.02, 6), -1.0, 1.0), closing)

    def _done(self, missing: NDArray[np.float64], tolerance: float) -> bool:
        waits = {"close": _CLOSE_STEPS, "open": _OPEN_STEPS}
        if self._phase in waits:
            return self._waited >= waits[self._phase]
        if (
            self._phase == "carry"
        ):  # the controller knows nothing of the can's weight: the hand hangs 2 to 3 cm low
            return bool(missing[:2].max() < tolerance)
        return bool(missing.max() < tolerance)

    def _goal(self) -> tuple[NDArray[np.float64], float]:
        """Where the tool point should be in this phase, and how closely, m."""
        can, tool, place = self._env.can, self._env.tool, self._env.goal.copy()
        place[:2] += self._place
        high = np.array([*tool[:2], _TRAVEL_M])
        return {
            "above": (can + np.array([0.0, 0.0, _HOVER_M]), 0.012),
            "down": (can, 0.008),
            "close": (tool, 0.0),
            "lift": (high, 0.03),
            "carry": (np.array([*place[:2], _TRAVEL_M]), 0.03),
            "lower": (place + np.array([0.0, 0.0, _RELEASE_M]), 0.04),
            "open": (tool, 0.0),
            "leave": (high, 0.0),
        }[self._phase]
