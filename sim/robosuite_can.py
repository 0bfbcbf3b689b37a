"""robosuite's PickPlaceCan: a Panda takes a can out of one bin and puts it into its place in another.

Scene, controller (operational space, OSC_POSE), distribution of starts and success are robosuite's own, as
robomimic uses them. Needs the extra `robosuite`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from data.features import Feature
from data.formats.extras import require
from hardware.action_spec import ActionGroup, ActionSpec
from sim.env import Judgement, MujocoTask
from sim.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sim.robosuite_can_expert import CanExpert
    from sim.task import Observation

CONTROL_HZ = 20.0
ARM_STEP_M = 0.05
"""How far ahead of the tool point its target is at an action of 1, m."""
_XYZW = [1, 2, 3, 0]  # robosuite's order of a quaternion, from MuJoCo's
_TABLE_M = 0.8
_ARM = "right"


class RobosuiteCan(MujocoTask):
    """Success, by robosuite: the can is in its quarter of the second bin, and the hand has left it.

    The action (7,) is the controller's own input, -1 to 1: position (1 is 5 cm from where the tool point is)
    and rotation vector (1 is 0.5 rad), both in the base frame, and the gripper, which closes above 0 and
    opens below.

    It differs from robosuite in two points. Observations are read after the step, not one physics step (2 ms)
    before, so that they are a function of the saved state, and leave out robosuite's relative pose of the
    can, which lags a control step behind. And an episode is drawn from this environment's generator;
    robosuite draws from NumPy's global one, which is left as it was.

    `info` holds `can_height_m` above the bins' floor, `held` (both fingers touch the can) and `in_bin`.
    """

    task_text = "put the can into its bin"
    robot = "Panda"
    max_steps = 400
    control_hz = CONTROL_HZ
    features = {  # noqa: RUF012 - read-only by convention
        "observation.state": Feature(
            (9,),
            "float32",
            names=(
                *(f"tool.{a}" for a in ("x", "y", "z", "qx", "qy", "qz", "qw")),
                "finger.left",
                "finger.right",
            ),
            description="Tool point (m), rotation of the hand, positions of the fingers (m), world frame.",
            rotations=((3, "quaternion_xyzw"),),
        ),
        "observation.environment_state": Feature(
            (10,),
            "float32",
            names=(
                *(f"can.{a}" for a in ("x", "y", "z", "qx", "qy", "qz", "qw")),
                *(f"can_from_tool.{axis}" for axis in "xyz"),
            ),
            description="Can: its centre (m) and rotation, and centre minus tool point (m), world frame.",
            rotations=((3, "quaternion_xyzw"),),
        ),
    }
    action_spec = ActionSpec(
        (
            ActionGroup("arm", 6, "delta", "pose", "base", rotation="rotvec", low=(-1.0,), high=(1.0,)),
            ActionGroup("gripper", 1, "absolute", "gripper", low=(-1.0,), high=(1.0,), names=("closing",)),
        ),
        CONTROL_HZ,
    )

    def __init__(self, *, render_mode: str | None = None) -> None:
        """Build the task.

        Args:
            render_mode: None or `rgb_array`.

        Raises:
            ImportError: robosuite is not installed.
            ValueError: for another render mode.
        """
        self._robosuite = _made()
        model: mujoco.MjModel = self._robosuite.sim.model._model  # noqa: SLF001 - no other way
        super().__init__(model, render_mode=render_mode)
        self.data: mujoco.MjData = self._robosuite.sim.data._data  # noqa: SLF001
        self.drawn = mujoco.MjvOption()
        self.drawn.geomgroup[0] = 0  # what collides, in robosuite; group 1 is what is to be seen
        robot = self._robosuite.robots[0]
        self._gripper = robot.gripper[_ARM]
        self._tool = int(robot.eef_site_id[_ARM])
        self._hand = model.body(robot.robot_model.eef_name[_ARM]).id
        self._can = int(self._robosuite.obj_body_id["Can"])
        self._fingers = [int(model.joint(f"gripper0_right_finger_joint{i}").qposadr[0]) for i in (1, 2)]

    @property
    def tool(self) -> NDArray[np.float64]:
        """(3,) true tool point between the fingers, world frame, m."""
        return np.array(self.data.site_xpos[self._tool])

    @property
    def tool_rotation(self) -> NDArray[np.float64]:
        """(3, 3) true rotation of the tool point's frame, world frame."""
        return np.array(self.data.site_xmat[self._tool]).reshape(3, 3)

    @property
    def can(self) -> NDArray[np.float64]:
        """(3,) true centre of the can, world frame, m."""
        return np.array(self.data.xpos[self._can])

    @property
    def goal(self) -> NDArray[np.float64]:
        """(3,) middle of the can's place on the floor of the second bin, world frame, m."""
        return np.array(self._robosuite.target_bin_placements[self._robosuite.object_id])

    @property
    def held(self) -> bool:
        """Whether both fingers touch the can."""
        grasped = self._robosuite._check_grasp  # noqa: SLF001 - robosuite's own test of a grasp has no public name
        return bool(grasped(self._gripper, self._robosuite.objects[self._robosuite.object_id]))

    def expert(self, seed: int) -> CanExpert:
        """Return a scripted demonstrator that knows where the can is."""
        from sim.robosuite_can_expert import CanExpert

        return CanExpert(self, seed)

    def _begin(self, options: Mapping[str, Any]) -> None:
        del options  # there are none
        with _global_generator(int(self.np_random.integers(2**32))):
            self._robosuite.reset()
        self._remember()
        self.refresh()

    def _advance(self, action: NDArray[np.float64]) -> None:
        self._robosuite.step(action)
        self._remember()
        self.refresh()

    def _remember(self) -> None:
        """Copy what robosuite keeps outside of MuJoCo and reads in later steps."""
        self.memory["gripper"] = np.array(self._gripper.current_action)
        self.memory["rest_joints"] = np.array(self._controller.initial_joint)
        self._forget()

    def _forget(self) -> None:
        """Let controllers read the joints anew in the next step; right after a reset they would not."""
        for controller in self._robosuite.robots[0].part_controllers.values():
            controller.new_update = True

    def _restored(self) -> None:
        self._forget()
        self._gripper.current_action = self.memory["gripper"].copy()
        self._controller.initial_joint = self.memory["rest_joints"].copy()

    @property
    def _controller(self) -> Any:  # noqa: ANN401 - robosuite has no types; it makes a new one at each reset
        return self._robosuite.robots[0].part_controllers[_ARM]

    def _observe(self) -> Observation:
        tool, can = self.tool, self.can
        hand = self.data.xquat[self._hand][_XYZW]
        fingers = self.data.qpos[self._fingers]
        return {
            "observation.state": np.concatenate([tool, hand, fingers]).astype(np.float32),
            "observation.environment_state": np.concatenate(
                [can, self.data.xquat[self._can][_XYZW], can - tool]
            ).astype(np.float32),
        }

    def _judge(self) -> Judgement:
        success = bool(self._robosuite._check_success())  # noqa: SLF001 - robosuite's own; it has no public name
        inside = not self._robosuite.not_in_bin(self.can, self._robosuite.object_id)
        height = float(self.can[2] - _TABLE_M)
        return Judgement(success, info={"can_height_m": height, "held": self.held, "in_bin": bool(inside)})


def _made() -> Any:  # noqa: ANN401 - robosuite has no types
    """Build robosuite's environment without its remarks, and leave this process's settings as they were."""
    with undisturbed():
        robosuite = require("robosuite", "robosuite", "The task robosuite-can")
        controllers = require("robosuite.controllers", "robosuite", "The task robosuite-can")
        made = robosuite.make(
            "PickPlaceCan",
            robots="Panda",
            controller_configs=controllers.load_composite_controller_config(robot="Panda"),
            control_freq=int(CONTROL_HZ),
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            use_object_obs=False,
            ignore_done=True,
            hard_reset=False,  # a hard one compiles the same model again, 1.3 s; this one takes 3 ms
            renderer="mujoco",  # its default renderer is one that opens a window
        )
        made.reset()
    made._observables.clear()  # noqa: SLF001 - ours are read from MuJoCo; robosuite's take nine tenths of a step
    return made


@contextlib.contextmanager
def _global_generator(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which robosuite draws from, and put it back."""
    before = np.random.get_state()  # noqa: NPY002 - robosuite 1.5.1 reads no other
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
