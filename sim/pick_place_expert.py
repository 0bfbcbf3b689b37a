"""Scripted picking and placing, with human-like noise and a second try after a lost grasp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.env import expert_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.pick_place import PickPlace

_TRAVEL_M = 0.64
_GRASP_ABOVE_CENTRE_M = 0.015
_RELEASE_ABOVE_FLOOR_M = 0.07
_OPEN_M = 0.08
_LOST_M = 0.04


class PickPlaceExpert:
    """Goes above the can, down, grasps, carries it over the named bin, lowers and lets go.

    Its pace varies between episodes, it pauses now and then, and its aim wanders by about a millimetre. If
    the can is no longer between the fingers while it carries, it starts over.

    Args:
        env: the running environment; its true state is read.
        seed: seed of the noise.
    """

    def __init__(self, env: PickPlace, seed: int) -> None:
        self._env = env
        self._generator = expert_generator(seed)
        self._pace = self._generator.uniform(0.008, 0.012)
        self._phase = "above"
        self._wait = 0
        self._aim: NDArray[np.float64] = np.zeros(3)

    def act(self) -> NDArray[np.float64]:
        """Return the next action (4,): change of the target in m, width of the gripper in m."""
        if self._phase in ("carry", "lower") and self._lost():
            self._phase = "above"
        goal, tolerance = self._goal()
        self._aim = 0.9 * self._aim + self._generator.normal(0.0, 2e-4, 3)
        error = goal + self._aim - self._env.tool_position
        width = 0.0 if self._phase in ("close", "lift", "carry", "lower") else _OPEN_M
        if np.abs(error).max() < tolerance or self._phase in ("close", "release"):
            self._next()
        if self._generator.random() < 0.02:
            error[:] = 0.0
        error -= self._env.lead
        step = error * min(1.0, self._pace / max(float(np.linalg.norm(error)), 1e-9))
        step += self._generator.normal(0.0, 3e-4, 3)
        return np.append(step, width)

    def _goal(self) -> tuple[NDArray[np.float64], float]:
        """Where the tool should be in this phase, and how closely, in m."""
        can, tool, bin_place = self._env.can, self._env.tool_position, self._env.bin_position
        above = {"above": can, "carry": bin_place}.get(self._phase, tool)
        travel = np.array([above[0], above[1], _TRAVEL_M])
        goals = {
            "above": (travel, 0.006),
            "down": (can + np.array([0.0, 0.0, _GRASP_ABOVE_CENTRE_M]), 0.004),
            "close": (tool, 0.0),
            "lift": (travel, 0.01),
            "carry": (travel, 0.01),
            "lower": (bin_place + np.array([0.0, 0.0, _RELEASE_ABOVE_FLOOR_M]), 0.008),
            "release": (travel, 0.0),
        }
        return goals[self._phase]

    def _next(self) -> None:
        if self._phase == "close":
            self._wait += 1
            if self._wait < 10:
                return
            self._wait = 0
        following = {"above": "down", "down": "close", "close": "lift", "lift": "carry", "carry": "lower"}
        self._phase = following.get(self._phase, "release")

    def _lost(self) -> bool:
        return bool(np.linalg.norm(self._env.can - self._env.tool_position) > _LOST_M)
