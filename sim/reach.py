"""Reach: bring the fingertips to a ball in the air; the smallest task of the arm, for smoke tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.arm_task import ARM_FEATURES, HOME, ArmTask, point_option
from sim.control import FREE_MOTION
from sim.env import Judgement, expert_generator, load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation

RADIUS_M = 0.01
_CENTER = np.array([0.5, 0.0, 0.62])
_BOX = _CENTER + np.array([[-0.08, -0.15, -0.08], [0.08, 0.15, 0.06]])
"""Least and greatest centre of the ball, base frame, m."""
_WIDTH_M = 0.04


class Reach(ArmTask):
    """Success: the measured fingertips' centre comes within 1 cm of the ball.

    Args:
        goal_speed_m_s: speed of the ball, m/s, in a direction drawn per episode; it turns round at the walls
            of the box in which it starts.
        **options: `shifts`, `cameras`, `image_size`, `render_mode`; see `ArmTask`. Reset options: `goal`
            (centre of the ball, (3,) m, base frame).
    """

    task_text = "reach the green ball"
    max_steps = 60
    reset_options = ("goal",)
    features = {  # noqa: RUF012 - read-only by convention
        "observation.state": ARM_FEATURES["observation.state"],
        "observation.wrench": ARM_FEATURES["observation.wrench"],
        "observation.environment_state": Feature(
            (3,),
            "float32",
            "m",
            ("goal.x", "goal.y", "goal.z"),
            "Ball minus measured tool point, base frame.",
        ),
    }
    action_spec = ActionSpec(
        (ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=(-0.015,), high=(0.015,)),), 20.0
    )

    def __init__(self, *, goal_speed_m_s: float = 0.0, **options: Any) -> None:  # noqa: ANN401 - handed on
        if not 0.0 <= goal_speed_m_s <= 1.0:
            raise ValueError(f"goal_speed_m_s is {goal_speed_m_s}; it must lie in 0 .. 1 m/s.")
        self.goal_speed_m_s = goal_speed_m_s
        super().__init__(load_model("reach.xml"), None, control=FREE_MOTION, **options)

    def _begin(self, options: Mapping[str, Any]) -> None:
        start = _CENTER + self.np_random.uniform(-0.05, 0.05, 3)
        goal = self.np_random.uniform(*_BOX)
        if self.goal_speed_m_s:
            direction = self.np_random.normal(size=3)
            self.memory["goal_velocity"] = self.goal_speed_m_s * direction / np.linalg.norm(direction)
        joints = self._inverse.solve(HOME, start, iterations=12)
        self.data.mocap_pos[0] = point_option(options, "goal", goal)
        self.start_arm(joints, _WIDTH_M)
        self.run_physics(joints, _WIDTH_M)

    def _advance(self, action: NDArray[np.float64]) -> None:
        if self.goal_speed_m_s:
            self._move_goal()
        self.move(self.delayed(action), _WIDTH_M)

    def _move_goal(self) -> None:
        """Move the ball by one control step."""
        velocity = self.memory["goal_velocity"]
        ahead = self.goal + velocity / self.control_hz
        inside = (ahead >= _BOX[0]) & (ahead <= _BOX[1])
        self.memory["goal_velocity"] = np.where(inside, velocity, -velocity)
        self.data.mocap_pos[0] = np.where(inside, ahead, self.goal)

    def _observe(self) -> Observation:
        offset = self.goal + np.array(self.shifts.estimate_offset_m) - self.tool_position
        return self.arm_observation() | {"observation.environment_state": offset.astype(np.float32)}

    def _judge(self) -> Judgement:
        distance = float(np.linalg.norm(self.goal - self.tool_position))
        return Judgement(distance < RADIUS_M, info={"distance_m": distance})

    @property
    def goal(self) -> NDArray[np.float64]:
        """Centre of the ball (3,), base frame, m."""
        centre: NDArray[np.float64] = self.data.mocap_pos[0].copy()
        return centre

    def expert(self, seed: int) -> ReachExpert:
        """Return a demonstrator that moves straight to the ball, with a wavering hand."""
        return ReachExpert(self, seed)


class ReachExpert:
    """Moves straight to the ball at up to 12 mm per step, with 1 mm of noise."""

    def __init__(self, env: Reach, seed: int) -> None:
        self._env = env
        self._generator = expert_generator(seed)

    def act(self) -> NDArray[np.float64]:
        """Return the next change of the target (3,), m."""
        error = self._env.goal - self._env.tool_position - self._env.lead
        step: NDArray[np.float64] = error * min(1.0, 0.012 / max(float(np.linalg.norm(error)), 1e-9))
        return step + self._generator.normal(0.0, 0.001, 3)
