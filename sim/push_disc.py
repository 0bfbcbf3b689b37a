"""PushDisc: push a disc into a goal circle; small and fast enough to try ideas on.

Base policies of any quality come from its own expert: a lateral bias drawn per episode and action noise spoil
the scripted rule (`PushDisc.expert`). Success measured on seeds from 0 on: no bias and noise 0.05: 1.00 (300
seeds); bias 3 cm and noise 0.4: 0.41 (1,200 seeds); bias 6 cm and noise 0.8: 0.07 (600 seeds).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.env import Judgement, expert_generator
from sim.planar import MAX_OFFSET, disc, get_behind_and_push, goal_mark, planar_model
from sim.planar_task import GOAL_RADIUS, PlanarTask

if TYPE_CHECKING:
    import mujoco
    from numpy.typing import NDArray

GOAL = (0.25, 0.0)
PUSHER_START_X = -0.05
DISC_START_X = 0.08
PUSHER_START_SPREAD = 0.05
DISC_START_SPREAD = 0.03


@functools.cache
def _scene() -> mujoco.MjModel:
    return planar_model("push_disc", [disc(), goal_mark(GOAL, GOAL_RADIUS)], center=(0.1, 0.0), view=0.5)


class PushDisc(PlanarTask):
    """Success: the disc's centre comes within 3 cm of (0.25, 0) inside 25 steps."""

    task_text = "push the disc into the circle"
    max_steps = 25
    goal = GOAL

    def __init__(
        self,
        *,
        expert_bias_m: float = 0.0,
        expert_noise: float = 0.05,
        **options: Any,  # noqa: ANN401 - handed on
    ) -> None:
        """Build the task.

        Args:
            expert_bias_m: default of `expert`'s `bias`, for spoiled demonstrations from a command line.
            expert_noise: default of its `noise`.
            **options: see `PlanarTask`, all but `model`.

        Raises:
            ValueError: if a spread is negative, or as `PlanarTask` says.
        """
        _check_spreads(expert_bias_m, expert_noise)
        self.expert_bias_m, self.expert_noise = expert_bias_m, expert_noise
        super().__init__(_scene(), **options)

    def expert(self, seed: int, *, bias: float | None = None, noise: float | None = None) -> PushExpert:
        """Return the scripted pusher for the running episode, spoiled as much as asked.

        Args:
            seed: seed of bias and noise; the environment's own random state is not touched.
            bias: standard deviation of the lateral error with which the disc is seen, drawn once, metres.
            noise: standard deviation of the action noise, as a fraction of the largest action.

        Raises:
            ValueError: if either is negative.
        """
        bias = self.expert_bias_m if bias is None else bias
        noise = self.expert_noise if noise is None else noise
        _check_spreads(bias, noise)
        return PushExpert(self, expert_generator(seed), bias=bias, noise=noise)

    def _start(self) -> tuple[float, float, float, float]:
        pusher_y = self.np_random.uniform(-PUSHER_START_SPREAD, PUSHER_START_SPREAD)
        disc_y = self.np_random.uniform(-DISC_START_SPREAD, DISC_START_SPREAD)
        return PUSHER_START_X, pusher_y, DISC_START_X, disc_y

    def _judge(self) -> Judgement:
        return Judgement(self.goal_distance < GOAL_RADIUS, info=self._figures())


class PushExpert:
    """Walks round to the far side of the disc, then pushes it to the goal; works from any state."""

    def __init__(self, env: PushDisc, generator: np.random.Generator, *, bias: float, noise: float) -> None:
        self._env = env
        self._generator = generator
        self._error = np.array([0.0, bias * generator.normal()])
        self._noise = noise * MAX_OFFSET

    def act(self) -> NDArray[np.float64]:
        """Return the next action (2,) in metres for the true state of the environment."""
        seen = self._env.disc + self._error
        offset = get_behind_and_push(self._env.pusher, seen, np.array(self._env.goal))
        return np.clip(offset + self._noise * self._generator.normal(size=2), -MAX_OFFSET, MAX_OFFSET)


def _check_spreads(bias: float, noise: float) -> None:
    if bias < 0.0 or noise < 0.0:
        raise ValueError(f"bias={bias}, noise={noise}: both are standard deviations, 0 or more.")
