"""PushTwoRoutes: push a disc past a post; passing it on the left is as good as on the right.

The demonstrations are bimodal, and their mean runs into the post. `blocked` closes one route with a wall that
no observation shows, so that half of what a policy learned there fails.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sim.env import Judgement, expert_generator
from sim.planar import DISC_RADIUS, MAX_OFFSET, disc, get_behind_and_push, goal_mark, planar_model, post, wall
from sim.planar_task import GOAL_RADIUS, PlanarTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    import mujoco
    from numpy.typing import NDArray

type Route = Literal["left", "right"]
type Blocked = Literal["none", "left", "right"]

GOAL = (0.36, 0.0)
POST = (0.20, 0.0)
POST_RADIUS = 0.025
WALL_END_Y = 0.30
PUSHER_START_X = -0.05
DISC_START_X = 0.08
PUSHER_START_SPREAD = 0.05
DISC_START_SPREAD = 0.01
LEFT, RIGHT, NO_ROUTE = 1.0, -1.0, 0.0
_SIGN = {"left": LEFT, "right": RIGHT}
_WAYPOINTS = ((0.17, 0.065), (0.25, 0.065))
_WAYPOINT_REACHED = 0.015


@functools.cache
def _scene(blocked: Blocked) -> mujoco.MjModel:
    parts = [disc(), post("post", POST, POST_RADIUS), goal_mark(GOAL, GOAL_RADIUS)]
    if blocked != "none":
        parts.append(wall("wall", POST, (POST[0], _SIGN[blocked] * WALL_END_Y), 0.02))
    return planar_model("push_two_routes", parts, center=(0.16, 0.0), view=0.6)


class PushTwoRoutes(PlanarTask):
    """Success: the disc's centre comes within 3 cm of (0.36, 0) inside 45 steps, by whichever route.

    `info["route"]` says on which side of the post the disc went: `LEFT` = 1.0 (positive y), `RIGHT` = -1.0,
    and `NO_ROUTE` = 0.0 until it has come beside the post.
    """

    task_text = "push the disc round the post into the circle"
    max_steps = 45
    goal = GOAL

    def __init__(self, *, blocked: Blocked = "none", **options: Any) -> None:  # noqa: ANN401 - handed on
        """Build the task.

        Args:
            blocked: which route a wall closes: `none`, `left` or `right`.
            **options: see `PlanarTask`, all but `model`.

        Raises:
            ValueError: for another value of `blocked`.
        """
        if blocked not in ("none", *_SIGN):
            raise ValueError(f"blocked is {blocked!r}; allowed: 'none', 'left', 'right'.")
        self.blocked: Blocked = blocked
        super().__init__(_scene(blocked), **options)

    def expert(self, seed: int, *, route: Route | None = None, noise: float = 0.05) -> TwoRoutesExpert:
        """Return the scripted pusher for the running episode.

        Args:
            seed: seed of route and noise; the environment's own random state is not touched.
            route: the side to pass the post on; None takes the open one, or draws one when both are open.
            noise: standard deviation of the action noise, as a fraction of the largest action.
        """
        generator = expert_generator(seed)
        drawn: Route = "left" if generator.random() < 0.5 else "right"
        if self.blocked != "none":
            drawn = "right" if self.blocked == "left" else "left"
        return TwoRoutesExpert(self, generator, route=route or drawn, noise=noise)

    def _start(self) -> tuple[float, float, float, float]:
        pusher_y = self.np_random.uniform(-PUSHER_START_SPREAD, PUSHER_START_SPREAD)
        disc_y = self.np_random.uniform(-DISC_START_SPREAD, DISC_START_SPREAD)
        return PUSHER_START_X, pusher_y, DISC_START_X, disc_y

    def _begin(self, options: Mapping[str, Any]) -> None:
        super()._begin(options)
        self.memory["route"] = np.array([NO_ROUTE])

    def _advance(self, action: NDArray[np.float64]) -> None:
        super()._advance(action)
        x, y = self.disc
        if self.memory["route"][0] == NO_ROUTE and x > POST[0] - POST_RADIUS and abs(y) > DISC_RADIUS:
            self.memory["route"] = np.array([np.sign(y)])

    def _judge(self) -> Judgement:
        figures = self._figures() | {"route": float(self.memory["route"][0])}
        return Judgement(self.goal_distance < GOAL_RADIUS, info=figures)


class TwoRoutesExpert:
    """Pushes the disc along way points beside the post, then to the goal.

    Attributes:
        route: the side it passes the post on.
    """

    def __init__(
        self, env: PushTwoRoutes, generator: np.random.Generator, *, route: Route, noise: float
    ) -> None:
        self.route = route
        self._env = env
        self._generator = generator
        self._noise = noise * MAX_OFFSET

    def act(self) -> NDArray[np.float64]:
        """Return the next action (2,) in metres for the true state of the environment."""
        offset = get_behind_and_push(self._env.pusher, self._env.disc, self._target())
        return np.clip(offset + self._noise * self._generator.normal(size=2), -MAX_OFFSET, MAX_OFFSET)

    def _target(self) -> NDArray[np.float64]:
        x = self._env.disc[0]
        for way_x, way_y in _WAYPOINTS:
            if x < way_x - _WAYPOINT_REACHED:
                return np.array([way_x, _SIGN[self.route] * way_y])
        return np.array(self._env.goal)
