"""Straight pushes of PushT's T, tried in a copy of the physics, and the ways to where they begin.

The T stops as soon as nobody pushes it, since the space takes all speed away within a step. So where a
straight push leaves it depends on the line alone, not on the pace, and a try needs no controller.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pymunk
import shapely
from scipy.sparse.csgraph import dijkstra

if TYPE_CHECKING:
    from gym_pusht.envs.pusht import PushTEnv
    from numpy.typing import NDArray

AGENT_RADIUS = 15.0
_CLEAR, _TOUCH = 4.0, 1.0  # between agent and T where a push begins, and where it counts as touching, px
_ARENA = [(5, 506), (5, 5), (506, 5), (506, 506)]
_LOW, _HIGH = 23.0, 489.0  # the agent's centre keeps between them, clear of the walls, px
_WAY_LOW, _WAY_HIGH = 17.0, 495.0  # and on its way between these
# Of tried contact points on an edge, px: 19 in all, each pushed straight in, succeed in 400 of 408 episodes.
# More points and two more angles did in 98 of 100, and take longer to try.
_SPACING, _FROM_END = 50.0, 4.0
_STRIDE, _STRIDES, _SUBSTEPS, _STEP_S = 4.0, 22, 3, 0.01  # a try: px and physics steps per stride
_WALK_SPEED, _PUSH_SPEED, _REST_STEPS = (
    25.0,
    12.0,
    8.0,
)  # px per control step; steps lost to come to rest twice
_NEAREST = 1.0  # mean distance below which getting closer counts no more, px
_WAYS = 40  # of so many best pushes the way is searched
_STUCK_IN = (
    6.0  # px of a way that may lie within touch at its start: the agent may stand closer than it walks
)


class Pushes:
    """Tries pushes and chooses one.

    Args:
        simulator: gym-pusht's environment, whose bodies and goal are copied; it is not touched.
    """

    def __init__(self, simulator: PushTEnv) -> None:
        self._space = pymunk.Space()
        self._space.damping = 0.0
        walls = itertools.pairwise([*_ARENA, _ARENA[0]])
        self._space.add(*(simulator.add_segment(self._space, a, b, 2) for a, b in walls))
        self._agent = simulator.add_circle(self._space, (256, 400), AGENT_RADIUS)
        self._block, shapes = simulator.add_tee(self._space, (256, 300), 0)
        boxes = [np.array(shape.get_vertices()) for shape in shapes]
        self._corners = np.concatenate(boxes)
        outline = shapely.normalize(shapely.union_all([shapely.Polygon(box) for box in boxes]))
        self._touching = _grown(outline, AGENT_RADIUS + _TOUCH)
        self._around = _grown(outline, AGENT_RADIUS + _CLEAR)
        self._contacts = _contacts(outline)
        self._goals = _placed(self._corners, np.array(simulator.goal_pose))

    def hits(self, pose: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]) -> bool:
        """Whether the agent would touch the T at a pose (x, y, angle) on a straight line (2,) to (2,), px."""
        solid = shapely.Polygon(_placed(self._touching, pose))
        return bool(shapely.intersects(solid, shapely.LineString([start, end])))

    def best(
        self, agent: NDArray[np.float64], pose: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Choose the push that shrinks the corners' mean distance from their goals most per control step.

        Args:
            agent: (2,) where the agent is, px.
            pose: (x, y, angle) of the T, px and rad.

        Returns:
            The way (n, 2) to where it begins and the point (2,) where it ends; None if none can be reached.
        """
        solid = shapely.Polygon(_placed(self._touching, pose))
        before = self._distance(pose)
        ranked = []
        for start, direction in self._candidates(pose, solid):
            after = np.array([self._distance(p) for p in self.tried(pose, start, direction)])
            lengths = _STRIDE * np.arange(1, len(after) + 1)
            steps = float(np.linalg.norm(start - agent)) / _WALK_SPEED + lengths / _PUSH_SPEED + _REST_STEPS
            rate = np.log(before / np.maximum(after, _NEAREST)) / steps
            most = int(rate.argmax())
            ranked.append((float(rate[most]), start, start + lengths[most] * direction))
        ranked.sort(key=lambda push: -push[0])
        around = _placed(self._around, pose)
        ways = ((_way(agent, start, solid, around), end) for _, start, end in ranked[:_WAYS])
        return next(((way, end) for way, end in ways if way is not None), None)

    def tried(
        self, pose: NDArray[np.float64], start: NDArray[np.float64], direction: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Poses (n, 3) of the T after each 4 px of a push from (2,) in a direction (2,) of length 1."""
        block, agent = self._block, self._agent
        block.angle = float(pose[2])
        block.position = (float(pose[0]), float(pose[1]))
        block.velocity, block.angular_velocity = (0.0, 0.0), 0.0
        agent.position = (float(start[0]), float(start[1]))
        speed = _STRIDE / _SUBSTEPS / _STEP_S
        agent.velocity = (float(speed * direction[0]), float(speed * direction[1]))
        for body in (block, agent):
            self._space.reindex_shapes_for_body(body)
        poses: list[tuple[float, float, float]] = []
        for stride in range(1, _STRIDES + 1):
            for _ in range(_SUBSTEPS):
                self._space.step(_STEP_S)
            if poses and not _inside(start + stride * _STRIDE * direction, _LOW, _HIGH):
                break
            poses.append((*block.position, block.angle))
        return np.array(poses)

    def _distance(self, pose: NDArray[np.float64]) -> float:
        return float(np.linalg.norm(_placed(self._corners, pose) - self._goals, axis=1).mean())

    def _candidates(
        self, pose: NDArray[np.float64], solid: shapely.Polygon
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Where pushes can begin (2,) and their directions (2,)."""
        found = []
        for contact, normal in self._contacts:
            start = _placed(contact + (AGENT_RADIUS + _CLEAR) * normal, pose)
            if _inside(start, _LOW, _HIGH) and not solid.contains(shapely.Point(start)):
                inward = np.arctan2(-normal[1], -normal[0]) + pose[2]
                found.append((start, np.array([np.cos(inward), np.sin(inward)])))
        return found


def _grown(outline: shapely.Polygon, margin: float) -> NDArray[np.float64]:
    """Ring (n, 2) of an outline grown by a margin, with its far corners cut."""
    grown = shapely.buffer(outline, margin, join_style="mitre", mitre_limit=1.4)
    ring: NDArray[np.float64] = shapely.get_coordinates(shapely.normalize(grown))
    return ring


def _contacts(outline: shapely.Polygon) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Points (2,) of the outline and the normals (2,) there, out of the T, in its frame."""
    found = []
    for a, b in itertools.pairwise(shapely.get_coordinates(outline)):
        length = float(np.linalg.norm(b - a))
        normal = np.array([b[1] - a[1], a[0] - b[0]]) / length
        if outline.contains(shapely.Point((a + b) / 2 + normal)):
            normal = -normal
        count = 1 + max(1, round((length - 2 * _FROM_END) / _SPACING))
        shares = np.linspace(_FROM_END / length, 1.0 - _FROM_END / length, count)
        found += [(a + share * (b - a), normal) for share in shares]
    return found


def _placed(points: NDArray[np.float64], pose: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points (..., 2) of the T's frame where they are at a pose (x, y, angle)."""
    c, s = np.cos(pose[2]), np.sin(pose[2])
    turned: NDArray[np.float64] = points @ np.array([[c, s], [-s, c]])
    return turned + pose[:2]


def _inside(points: NDArray[np.float64], low: float, high: float) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = np.all((points > low) & (points < high), axis=-1)
    return inside


def _way(
    start: NDArray[np.float64], end: NDArray[np.float64], solid: shapely.Polygon, around: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The shortest way (n, 2) round the T over the corners around it; None if there is none."""
    nodes = np.vstack([start, end, around[:-1][_inside(around[:-1], _WAY_LOW, _WAY_HIGH)]])
    count = len(nodes)
    lines = shapely.linestrings(
        np.stack([np.repeat(nodes, count, axis=0), np.tile(nodes, (count, 1))], axis=1)
    )
    free = ~shapely.intersects(solid, lines)
    free[:count] |= shapely.length(shapely.intersection(solid, lines[:count])) < _STUCK_IN
    lengths = np.where(free, shapely.length(lines), 0.0).reshape(count, count)  # 0 is no edge
    reached, before = dijkstra(lengths, indices=0, return_predecessors=True)
    if not np.isfinite(reached[1]):
        return None
    order = [1]
    while order[-1] != 0:
        order.append(int(before[order[-1]]))
    way: NDArray[np.float64] = nodes[order[::-1]]
    return way
