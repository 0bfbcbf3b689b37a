"""What the planar tasks share: observations, the servo step with its force reading, and hardware shifts."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.cameras import with_moved_cameras
from sim.env import MujocoTask, copy_model
from sim.planar import CONTROL_HZ, MAX_OFFSET, SUBSTEPS
from sim.shifts import NO_SHIFTS, Shifts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation

CAMERAS = ("top",)
GOAL_RADIUS = 0.03
_PUSHER, _DISC = slice(0, 2), slice(2, 4)
_STATE = Feature(
    (4,),
    "float32",
    "m",
    ("pusher.x", "pusher.y", "disc.x", "disc.y"),
    "measured centres of pusher and disc, world frame",
)
_WRENCH = Feature(
    (6,),
    "float32",
    "",
    ("force.x", "force.y", "force.z", "torque.x", "torque.y", "torque.z"),
    "contact on the pusher about its centre, N and N m, world frame, mean over the control step",
)
_ACTION = ActionSpec(
    (
        ActionGroup(
            "pusher", 2, "delta", "position", "world", unit="m", low=(-MAX_OFFSET,), high=(MAX_OFFSET,)
        ),
    ),
    CONTROL_HZ,
)


class PlanarTask(MujocoTask):
    """A pusher on two position servos moves one disc over a table, at 10 Hz.

    The action (2,) is the servo target relative to where the pusher is, metres, within +-0.03 in x and in y.
    `info` holds `contact_force_n`, the greatest force on the pusher within the control step, and
    `goal_distance_m`, from the disc's centre to the goal's.

    Attributes:
        goal: (x, y) of the goal circle, metres; each task has its own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": int(CONTROL_HZ)}  # noqa: RUF012 - Gymnasium's type
    control_hz = CONTROL_HZ
    substeps = SUBSTEPS
    action_spec = _ACTION
    goal: tuple[float, float]

    def __init__(
        self,
        model: mujoco.MjModel,
        *,
        shifts: Shifts = NO_SHIFTS,
        wrench: bool = False,
        cameras: tuple[str, ...] = (),
        image_size: tuple[int, int] = (96, 96),
        render_mode: str | None = None,
    ) -> None:
        """Build the task on a compiled scene.

        Args:
            model: from `sim.planar.planar_model` with one `disc`; shared, not changed.
            shifts: differences to the training hardware, in the plane; no joint encoders here.
            wrench: adds `observation.wrench`.
            cameras: adds `observation.images.<camera>`; allowed: `top`.
            image_size: height and width of those pictures, pixels.
            render_mode: None or `rgb_array`.

        Raises:
            ValueError: for an unknown camera, or a shift that a planar pusher cannot have.
        """
        _check_shifts(shifts)
        unknown = [name for name in cameras if name not in CAMERAS]
        if unknown:
            raise ValueError(f"cameras names {unknown[0]!r}; allowed here: {', '.join(CAMERAS)}.")
        self.shifts = shifts
        self._cameras = tuple(cameras)
        self._image_size = image_size
        self._measure_wrench = wrench
        picture = Feature((*image_size, 3), "uint8", "", ("height", "width", "channel"))
        self.features = {
            "observation.state": _STATE,
            **({"observation.wrench": _WRENCH} if wrench else {}),
            **{f"observation.images.{name}": picture for name in self._cameras},
        }
        self._pusher_body = model.body("pusher").id
        super().__init__(
            with_moved_cameras(_shifted(model, shifts), CAMERAS, shifts), render_mode=render_mode
        )

    @property
    def pusher(self) -> NDArray[np.float64]:
        """(2,) true centre of the pusher, metres."""
        return np.array(self.data.qpos[_PUSHER])

    @property
    def disc(self) -> NDArray[np.float64]:
        """(2,) true centre of the disc, metres."""
        return np.array(self.data.qpos[_DISC])

    @property
    def goal_distance(self) -> float:
        """Distance of the true disc centre from the goal's, metres."""
        return float(np.hypot(*(self.data.qpos[_DISC] - self.goal)))

    @abstractmethod
    def _start(self) -> tuple[float, float, float, float]:
        """Draw where the pusher (x, y) and the disc (x, y) start, metres."""

    def _begin(self, options: Mapping[str, Any]) -> None:
        del options  # there are none
        self.data.qpos[:] = self._start()
        self.data.ctrl[:] = self.data.qpos[_PUSHER]
        self.memory["peak_force"] = np.zeros(1)
        self.memory["wrench"] = np.zeros(6)  # nothing has touched yet
        self.memory["late_actions"] = np.zeros((self.shifts.action_delay_steps, 2))
        self.refresh()

    def _advance(self, action: NDArray[np.float64]) -> None:
        queue = np.vstack([self.memory["late_actions"], action])
        self.memory["late_actions"] = queue[1:]
        self.data.ctrl[:] = self.data.qpos[_PUSHER] + queue[0] + self.shifts.servo_bias_m[:2]
        self.data.qfrc_applied[_PUSHER] = self._kick()
        self._simulate()
        self.data.qfrc_applied[_PUSHER] = 0.0
        self.refresh()

    def _simulate(self) -> None:
        """Run the physics of one control step and remember the force on the pusher."""
        peak = 0.0
        total = np.zeros(6)
        for _ in range(self.substeps):
            mujoco.mj_step(self.model, self.data)
            if not self.data.ncon:
                continue
            # Of contacts only: these joints have no limits or friction.
            x, y = self.data.qfrc_constraint[_PUSHER]
            peak = max(peak, float(np.hypot(x, y)))
            if self._measure_wrench:
                mujoco.mj_rnePostConstraint(self.model, self.data)
                total += self.data.cfrc_ext[self._pusher_body]
        self.memory["peak_force"] = np.array([peak])
        self.memory["wrench"] = np.roll(total, 3) / self.substeps  # MuJoCo puts torque before force

    def _kick(self) -> NDArray[np.float64]:
        if not self.shifts.kick_probability or self.np_random.random() >= self.shifts.kick_probability:
            return np.zeros(2)
        angle = self.np_random.uniform(-np.pi, np.pi)
        return self.shifts.kick_force_n * np.array([np.cos(angle), np.sin(angle)])

    def _observe(self) -> Observation:
        state = self.data.qpos[:4].astype(np.float32)
        state[_DISC] += np.asarray(self.shifts.estimate_offset_m[:2], np.float32)
        observation: Observation = {"observation.state": state}
        if self._measure_wrench:
            observation["observation.wrench"] = self.memory["wrench"].astype(np.float32)
        for name in self._cameras:
            observation[f"observation.images.{name}"] = self.picture(name, *self._image_size)
        return observation

    def _figures(self) -> dict[str, float | bool]:
        return {
            "contact_force_n": float(self.memory["peak_force"][0]),
            "goal_distance_m": self.goal_distance,
        }


def _check_shifts(shifts: Shifts) -> None:
    if any(shifts.encoder_offset_rad):
        raise ValueError(
            f"Shifts.encoder_offset_rad is {shifts.encoder_offset_rad}: a planar pusher has no joint angles; "
            "leave it at zero, or shift the disc's estimate with estimate_offset_m."
        )
    for name in ("servo_bias_m", "estimate_offset_m"):
        if getattr(shifts, name)[2]:
            raise ValueError(f"Shifts.{name} is {getattr(shifts, name)}: nothing moves in z here; give 0.0.")


def _shifted(model: mujoco.MjModel, shifts: Shifts) -> mujoco.MjModel:
    """Return the model, or a copy with other friction (contacts and table) and a heavier pusher."""
    if not shifts.changes_physics:
        return model
    changed = copy_model(model)
    changed.geom_friction[:, 0] *= shifts.friction_scale
    changed.dof_frictionloss[:] *= shifts.friction_scale
    pusher = changed.body("pusher").id
    changed.body_mass[pusher] += shifts.payload_kg
    mujoco.mj_setConst(changed, mujoco.MjData(changed))
    return changed
