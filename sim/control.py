"""Cartesian delta control: target pose <- target + action, inverse kinematics, joint position servos.

Two limits keep contact gentle. The target may lead the measured tool by `max_lead_m` per axis (no wind-up).
And the servos' set-point, adjusted at 100 Hz, leads it by `servo_lead_m` per axis at most; as the servos act
like springs of about 42, 15 and 22 kN/m along x, y and z in the middle of the workspace, that bounds a
steady push: 0.5 mm are 11 N downwards, 7 N and 21 N sideways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mink
import mujoco
import numpy as np

from sim.env import load_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARM_FILE = "arm.xml"
DOWN = np.array([0.0, 1.0, 0.0, 0.0])
"""Quaternion (w, x, y, z) of a tool that points down, fingers closing along y."""
_JOINTS = 7


@dataclass(frozen=True)
class CartesianConfig:
    """Settings of the Cartesian controller.

    Attributes:
        max_lead_m: greatest distance of the target from the measured tool, per axis, in m.
        servo_lead_m: greatest distance of the servos' set-point from the measured tool, per axis, in m.
        tool_length_m: distance of the tool point below the fingertips' centre, in m (a held peg's tip, say).
        orientation_cost: weight of 1 rad against 1 m in the inverse kinematics.
        damping: damping of the inverse kinematics (added to the Hessian, m^2 per rad^2).
    """

    max_lead_m: float = 0.005
    servo_lead_m: float = 0.0005
    tool_length_m: float = 0.0
    orientation_cost: float = 0.5
    damping: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse settings that cannot move the arm."""
        if not 0 < self.servo_lead_m <= self.max_lead_m <= 0.1:
            raise ValueError(
                f"servo_lead_m is {self.servo_lead_m}, max_lead_m {self.max_lead_m}; "
                "0 < servo_lead_m <= max_lead_m <= 0.1 m."
            )


FREE_MOTION = CartesianConfig(max_lead_m=0.02, servo_lead_m=0.003)
"""Wider limits than contact tasks want: up to 0.3 m/s, and pushes of up to 70 N."""


class ToolKinematics:
    """Forward kinematics of the arm alone: where a robot believes its tool to be, given measured joints."""

    def __init__(self, tool_length_m: float = 0.0) -> None:
        self._model = load_model(ARM_FILE)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site("fingertips").id
        self._tool = np.array([0.0, 0.0, tool_length_m])
        self._linear = np.zeros((3, self._model.nv))
        self._angular = np.zeros((3, self._model.nv))

    def update(self, joints: NDArray[np.float64]) -> None:
        """Take measured joint angles (7,) in rad."""
        self._data.qpos[:_JOINTS] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)

    @property
    def rotation(self) -> NDArray[np.float64]:
        """Rotation matrix (3, 3) from tool to base frame."""
        matrix: NDArray[np.float64] = self._data.site_xmat[self._site].reshape(3, 3).copy()
        return matrix

    @property
    def position(self) -> NDArray[np.float64]:
        """Tool point (3,) in the base frame, in m."""
        point: NDArray[np.float64] = self._data.site_xpos[self._site] + self.rotation @ self._tool
        return point

    def jacobian(self) -> NDArray[np.float64]:
        """Return the tool point's Jacobian (6, 7) in the base frame: linear, then angular rows."""
        body = int(self._model.site_bodyid[self._site])
        mujoco.mj_jac(self._model, self._data, self._linear, self._angular, self.position, body)
        return np.concatenate([self._linear[:, :_JOINTS], self._angular[:, :_JOINTS]])


class ServoLimiter:
    """Keeps the servos' set-point close to the measured tool, so that stiff servos push softly."""

    def __init__(self, jacobian: NDArray[np.float64], limit_m: float) -> None:
        """Take the tool's Jacobian (6, 7), good for one control step, and the greatest lead per axis."""
        self._linear = jacobian[:3]
        self._back = np.linalg.solve(jacobian @ jacobian.T + 1e-9 * np.eye(6), jacobian)[:3].T
        self._limit = limit_m

    def limit(self, setpoint: NDArray[np.float64], joints: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the set-point (7,), moved so that it leads the measured joints (7,) as far as allowed."""
        lead = self._linear @ (setpoint - joints)
        excess = lead - np.minimum(np.maximum(lead, -self._limit), self._limit)
        result: NDArray[np.float64] = setpoint - self._back @ excess
        return result


class InverseKinematics:
    """Joint angles that hold the tool at a target pose, found by mink's differential inverse kinematics."""

    def __init__(self, config: CartesianConfig) -> None:
        self._config = config
        self._configuration = mink.Configuration(load_model(ARM_FILE))
        self._task = mink.FrameTask("fingertips", "site", 1.0, config.orientation_cost)
        self._offset = np.array([0.0, 0.0, config.tool_length_m])
        model = load_model(ARM_FILE)
        self._low, self._high = model.jnt_range[:_JOINTS].T + np.array([[1e-3], [-1e-3]])

    def solve(
        self, joints: NDArray[np.float64], position: NDArray[np.float64], iterations: int = 1
    ) -> NDArray[np.float64]:
        """Move joint angles towards a target with the tool pointing down.

        Args:
            joints: (7,) rad, where to start from; the result continues from there, so redundancy does not
                jump.
            position: (3,) tool point in the base frame, in m.
            iterations: Gauss-Newton steps; one suffices for targets that move some millimetres per call.

        Returns:
            (7,) rad, clipped to the joint limits.
        """
        q = self._configuration.q.copy()
        q[:_JOINTS] = joints
        rotation = mink.SO3(DOWN)
        self._task.set_target(
            mink.SE3.from_rotation_and_translation(rotation, position - rotation.as_matrix() @ self._offset)
        )
        for _ in range(iterations):
            self._configuration.update(q)
            step = mink.solve_ik(
                self._configuration, [self._task], 1.0, "daqp", damping=self._config.damping, limits=[]
            )
            q[:_JOINTS] = np.clip(q[:_JOINTS] + step[:_JOINTS], self._low, self._high)
        return q[:_JOINTS].copy()
