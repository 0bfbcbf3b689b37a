"""What every task with the arm shares: the control step, its sensors, hardware shifts, the measured state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import mujoco
import numpy as np

from data.features import Feature
from sim.cameras import with_moved_cameras
from sim.control import CartesianConfig, InverseKinematics, ServoLimiter, ToolKinematics
from sim.env import MujocoTask, copy_model
from sim.gel import COLUMNS, ROWS
from sim.shifts import NO_SHIFTS, Shifts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation

ARM_STATE_NAMES = (
    *(f"tool.{axis}" for axis in "xyz"),
    *(f"tool_velocity.{axis}" for axis in "xyz"),
    *(f"lead.{axis}" for axis in "xyz"),
    *(f"joint{i}" for i in range(1, 8)),
    "gripper.width",
)
ARM_FEATURES = {
    "observation.state": Feature(
        (len(ARM_STATE_NAMES),),
        "float32",
        names=ARM_STATE_NAMES,
        description="Measured by the robot: tool point (m), its velocity (m/s) and the target's lead over it "
        "(m) in the base frame, joint angles (rad), distance between the pads (m).",
    ),
    "observation.wrench": Feature(
        (6,),
        "float32",
        names=("fx", "fy", "fz", "tx", "ty", "tz"),
        description="Force (N) and torque (N m) of the world on the tool, about the tool point, in the tool "
        "frame (z out of the hand), mean over the control step; weight of hand and held object taken off.",
    ),
    **{
        f"observation.tactile.{side}": Feature(
            (ROWS, COLUMNS, 3),
            "float32",
            "N",
            description=f"Forces on the {side} pad's taxels, rows from palm to tip: shear across the finger, "
            "shear towards the tip, normal; mean over the control step.",
        )
        for side in ("left", "right")
    },
}
_GRAVITY = np.array([0.0, 0.0, -9.81])
CAMERAS = ("front", "wrist")
HOME = np.array([0.0, -0.14, 0.0, -1.6, 0.0, 1.46, 0.785])
"""Joint angles (7,) with the tool above the middle of the bench; where inverse kinematics starts from."""
FINGERTIPS_M = 0.1034
"""Distance of the fingertips' centre from the wrist."""
_ARM = slice(0, 7)
_SERVO_PERIOD = 5  # substeps: set-points change at 100 Hz
FINGERS = slice(7, 9)
"""Where the finger joints lie among the scene's positions."""


class Touch(Protocol):
    """Reads the fingertips' taxels from the sensor log of a control step."""

    def read(self, log: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """Take a log (substeps, n) and return forces (4, 4, 3) in N for "left" and "right"."""
        ...


class ArmTask(MujocoTask):
    """A task of the seven-joint arm under Cartesian delta control at 20 Hz, physics at 500 Hz.

    Subclasses call `start_arm` in `_begin` and `move` in `_advance`, and find the sensor log of the last
    control step in `self.log` (substeps, n).

    Args:
        model: compiled scene with the arm of arm.xml, shared between environments.
        touch: reader of the fingertips; None if the task has no touch.
        control: settings of the Cartesian controller.
        shifts: differences of the simulated hardware.
        cameras: pictures to observe as `observation.images.<camera>`: `front`, `wrist` or both.
        image_size: height and width of those pictures, in pixels.
        render_mode: see Gymnasium.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        touch: Touch | None,
        *,
        control: CartesianConfig,
        shifts: Shifts = NO_SHIFTS,
        cameras: tuple[str, ...] = (),
        image_size: tuple[int, int] = (96, 96),
        render_mode: str | None = None,
    ) -> None:
        unknown = [name for name in cameras if name not in CAMERAS]
        if unknown:
            raise ValueError(f"cameras names {unknown[0]!r}; allowed: {', '.join(CAMERAS)}.")
        picture = Feature((*image_size, 3), "uint8", "", ("height", "width", "channel"))
        self.features = {**self.features, **{f"observation.images.{name}": picture for name in cameras}}
        self._cameras = tuple(cameras)
        self._image_size = image_size
        shifted = _shifted(model, shifts) if shifts.changes_physics else model
        super().__init__(with_moved_cameras(shifted, CAMERAS, shifts), render_mode=render_mode)
        self.touch = touch
        self.shifts = shifts
        self.control = control
        self._measured = ToolKinematics(control.tool_length_m)
        self._inverse = InverseKinematics(control)
        self._hand = self.model.body("hand").id
        self._tool = np.array([0.0, 0.0, FINGERTIPS_M + control.tool_length_m])
        self._load = _load(model)
        self._force = int(self.model.sensor("wrist_force").adr[0])
        self._servo_bias = np.array(shifts.servo_bias_m)
        self._encoder = np.array(shifts.encoder_offset_rad)
        self.log = np.zeros((self.substeps, self.model.nsensordata))

    def start_arm(self, joints: NDArray[np.float64], width_m: float) -> None:
        """Put the arm at rest at joint angles (7,) in rad, with the gripper commanded to a width in m."""
        self.data.qpos[_ARM] = joints
        self.data.qpos[FINGERS] = width_m / 2
        self.data.ctrl[_ARM] = joints
        self.data.ctrl[7] = width_m
        self._measured.update(joints + self._encoder)
        self.memory.update(
            target=self._measured.position,
            setpoint=joints.copy(),
            pending=np.zeros((self.shifts.action_delay_steps, self.action_spec.size)),
        )

    def move(self, delta: NDArray[np.float64], width_m: float) -> None:
        """Run one control step of Cartesian delta control.

        Args:
            delta: (3,) m, change of the target in the base frame.
            width_m: commanded distance between the pads, in m.
        """
        measured = self._measured.position
        lead = self.memory["target"] + delta - measured
        target = measured + np.clip(lead, -self.control.max_lead_m, self.control.max_lead_m)
        joints = self._inverse.solve(self.memory["setpoint"], target + self._servo_bias)
        self._kick()
        self.run_physics(joints, width_m)
        self.memory["target"] = target

    def delayed(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the action that takes effect now, which is `action` unless actions are late."""
        queue = np.concatenate([self.memory["pending"], action[None]])
        self.memory["pending"] = queue[1:]
        now: NDArray[np.float64] = queue[0]
        return now

    def run_physics(self, joints: NDArray[np.float64], width_m: float) -> None:
        """Ramp the servos to joint angles (7,) over one control step; log the sensors of every substep."""
        limiter = ServoLimiter(self._measured.jacobian(), self.control.servo_lead_m)
        start = self.memory["setpoint"]
        ramp = start + (joints - start) * (np.arange(1, self.substeps + 1) / self.substeps)[:, None]
        model, data, log, step = self.model, self.data, self.log, mujoco.mj_step
        control, sensors, q = data.ctrl, data.sensordata, data.qpos[_ARM]
        control[7] = width_m
        for k in range(self.substeps):
            if k % _SERVO_PERIOD == 0:
                control[_ARM] = limiter.limit(ramp[k + _SERVO_PERIOD - 1], q + self._encoder)
            step(model, data)
            log[k] = sensors
        self.memory["setpoint"] = joints
        self.refresh()
        self._sense()

    def _kick(self) -> None:
        if self.shifts.kick_probability == 0.0:
            return
        self.data.xfrc_applied[self._hand] = 0.0
        if self.np_random.random() < self.shifts.kick_probability:
            angle = self.np_random.uniform(0, 2 * np.pi)
            push = self.shifts.kick_force_n * np.array([np.cos(angle), np.sin(angle), 0.0])
            self.data.xfrc_applied[self._hand, :3] = push

    def _sense(self) -> None:
        """Turn the log into the readings of this step and keep them with the task state."""
        raw = self.log[:, self._force : self._force + 6].mean(axis=0)
        mass, centre = self._load
        weight = mass * (self._measured.rotation.T @ _GRAVITY)
        # The sensor reports what the arm does to the hand to hold it; the world does the opposite.
        force = -raw[:3] - weight
        torque = -raw[3:] - _cross(centre, weight) - _cross(self._tool, force)
        self.memory["wrench"] = np.concatenate([force, torque])
        touched = self.touch.read(self.log) if self.touch else {}
        for side, values in touched.items():
            self.memory[f"tactile.{side}"] = values

    def refresh(self) -> None:
        """Also take the new joint measurement."""
        super().refresh()
        self._measured.update(self.data.qpos[_ARM] + self._encoder)

    @property
    def tool_position(self) -> NDArray[np.float64]:
        """Measured tool point (3,) in the base frame, m."""
        return self._measured.position

    @property
    def lead(self) -> NDArray[np.float64]:
        """Target minus measured tool point (3,) in the base frame, m."""
        return self.memory["target"] - self._measured.position

    def arm_observation(self) -> Observation:
        """Return measured state, wrench, touch and pictures, as far as the task has them."""
        velocity = self._measured.jacobian()[:3] @ self.data.qvel[_ARM]
        position = self._measured.position
        joints = self.data.qpos[_ARM] + self._encoder
        width = [self.data.qpos[FINGERS].sum()]
        state = np.concatenate([position, velocity, self.memory["target"] - position, joints, width])
        touch = {
            f"observation.{key}": self.memory[key].copy() for key in self.memory if key.startswith("tactile")
        }
        pictures = {
            f"observation.images.{name}": self.picture(name, *self._image_size) for name in self._cameras
        }
        return {
            "observation.state": state.astype(np.float32),
            "observation.wrench": self.memory["wrench"].astype(np.float32),
            **touch,
            **pictures,
        }


def point_option(options: Mapping[str, Any], name: str, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """A point (3,) of the reset options, or the drawn one.

    Raises:
        ValueError: it is no three finite numbers.
    """
    point = np.asarray(options.get(name, drawn), float)
    if point.shape != (3,) or not np.isfinite(point).all():
        raise ValueError(f"reset option {name} is {options[name]}; give 3 finite numbers, m.")
    return point


def _load(model: mujoco.MjModel) -> tuple[float, NDArray[np.float64]]:
    """Mass (kg) that the wrist sensor carries and its centre (3,) in the hand's frame, m."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    hand = model.body("hand").id
    centre = data.xmat[hand].reshape(3, 3).T @ (data.subtree_com[hand] - data.xpos[hand])
    return float(model.body_subtreemass[hand]), centre


def _cross(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cross product of two vectors (3,); np.cross takes ten times as long for so few numbers."""
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _shifted(shared: mujoco.MjModel, shifts: Shifts) -> mujoco.MjModel:
    model = copy_model(shared)
    model.geom_friction[:, 0] *= shifts.friction_scale
    model.pair_friction[:, :2] *= shifts.friction_scale
    model.body_mass[model.body("payload").id] = max(shifts.payload_kg, 1e-6)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model
