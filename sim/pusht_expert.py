"""Scripted pushing of the T, push after push, with human-like noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import shapely

from sim.frame import expert_generator
from sim.pusht_pushes import Pushes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.pusht import PushT

_PUSHING_PX, _WALKING_PX = 24.0, 56.0  # how far ahead of the agent its target is, at a pace of 1
_BEGINS_PX, _ENDS_PX = 4.0, 1.5  # how close the agent comes to a push's begin and end
_GIVE_UP_STEPS = 45
_MIDDLE = np.array([256.0, 256.0])


class PushTExpert:
    """Chooses a push, walks round the T to where it begins, pushes, and chooses again.

    Of all tried pushes it takes the one that shrinks the mean distance of the T's corners from their goals by
    the greatest factor per control step, the way to it included.

    Args:
        env: the running environment; its true state is read, and copied into a space of its own.
        seed: seed of the noise.
    """

    def __init__(self, env: PushT, seed: int) -> None:
        self._env = env
        self._generator = expert_generator(seed)
        self._pushes = Pushes(env.simulator)
        self._path: NDArray[np.float64] = np.empty((0, 2))
        self._pushing = False
        self._push_to: NDArray[np.float64] = np.zeros(2)
        self._stuck = 0
        self._pace = self._generator.uniform(0.85, 1.1)

    def act(self) -> NDArray[np.float64]:
        """Return the next target of the agent (2,), px."""
        agent = self._env.agent
        close = _ENDS_PX if self._pushing else _BEGINS_PX
        if len(self._path) and np.linalg.norm(agent - self._path[-1]) < close:
            self._arrived()
        self._stuck += 1
        if not len(self._path) or self._stuck > _GIVE_UP_STEPS:
            self._choose()
        target = self._pursue(agent)
        noise = 0.5 if self._pushing else 2.0
        return np.clip(target + self._generator.normal(0.0, noise, 2), 0.0, 512.0)

    def _arrived(self) -> None:
        self._stuck = 0
        if self._pushing:
            self._path, self._pushing = np.empty((0, 2)), False
        else:
            self._path, self._pushing = np.array([self._path[-1], self._push_to]), True

    def _choose(self) -> None:
        self._stuck = 0
        chosen = self._pushes.best(self._env.agent, self._env.block)
        if chosen is None:
            self._path = np.array([self._env.agent, _MIDDLE])  # nothing reachable: move off
            self._push_to, self._pushing = self._env.agent, False
        else:
            self._path, self._push_to = chosen
            self._pushing = False

    def _pursue(self, agent: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point of the path some way ahead of the agent's nearest, less where the T would be cut."""
        ahead = self._pace * (_PUSHING_PX if self._pushing else _WALKING_PX)
        line = shapely.LineString(self._path)
        done = shapely.line_locate_point(line, shapely.Point(agent))
        while True:
            target: NDArray[np.float64] = shapely.get_coordinates(
                shapely.line_interpolate_point(line, done + ahead)
            )[0]
            if self._pushing or ahead < 8.0 or not self._pushes.hits(self._env.block, agent, target):
                return target
            ahead *= 0.6
