"""Template: a task of your own. Copy this file into your package; nothing in the library needs an edit.

Use it as `module:Class`, for example

    robot-rl collect --task my_package.my_task:LiftAboveLine --episodes 20 --out outputs/demos

and check it with

    from sim.conformance import check_task
    check_task(LiftAboveLine)

This one raises the fingertips above a line that is drawn per episode. It derives from `ArmTask`, which
brings the arm, its controller and its sensors; a task without the arm derives from `sim.env.MujocoTask` in
the same way (sim/push_disc.py is one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.arm_task import ARM_FEATURES, HOME, ArmTask
from sim.control import FREE_MOTION
from sim.env import Judgement, expert_generator, load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation


class LiftAboveLine(ArmTask):
    """Success: the fingertips' centre is above the line."""

    # 1. The task in words, for policies that read language, and its length in control steps.
    task_text = "lift the hand above the line"
    max_steps = 40
    reset_options = ("line",)

    # 2. What an observation holds: shape, type, unit, names. Checkpoints and datasets compare against it.
    features = {  # noqa: RUF012 - read-only by convention
        "observation.state": ARM_FEATURES["observation.state"],
        "observation.environment_state": Feature(
            (1,), "float32", "m", ("line.z",), "Line minus tool, height."
        ),
    }

    # 3. What the numbers of an action mean, in SI units, and their limits. Actions beyond them are clipped.
    action_spec = ActionSpec(
        (ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=(-0.01,), high=(0.01,)),),
        rate_hz=20.0,
    )

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - handed on
        # 4. `load_model` compiles a scene once per process and shares it. An absolute path names your own
        # MJCF file.
        super().__init__(load_model("reach.xml"), None, control=FREE_MOTION, **options)

    def _begin(self, options: Mapping[str, Any]) -> None:
        # 5. Draw the episode from self.np_random only. What has to survive save() and restore() goes into
        # self.data (MuJoCo's state) or self.memory (named arrays), nowhere else.
        line = np.array(options.get("line", self.np_random.uniform(0.62, 0.66)))
        self.memory["line"] = line
        start = np.array([0.5, 0.0, 0.58]) + self.np_random.uniform(-0.02, 0.02, 3)
        joints = self._inverse.solve(HOME, start, iterations=12)
        self.start_arm(joints, width_m=0.04)
        self.run_physics(joints, width_m=0.04)

    def _advance(self, action: NDArray[np.float64]) -> None:
        # 6. One control step. `delayed` and `move` apply the hardware shifts.
        self.move(self.delayed(action), width_m=0.04)

    def _observe(self) -> Observation:
        # 7. Sensors only: nothing a real robot could not know.
        arm = self.arm_observation()
        line = np.atleast_1d(self.memory["line"] - self.tool_position[2]).astype(np.float32)
        return {key: arm[key] for key in arm if key in self.features} | {
            "observation.environment_state": line
        }

    def _judge(self) -> Judgement:
        # 8. Success from the true state. Further figures go into `info` of every step.
        height = float(self.data.site_xpos[self.model.site("fingertips").id, 2] - self.memory["line"])
        return Judgement(success=height > 0.0, info={"height_m": height})

    def expert(self, seed: int) -> LiftExpert:
        """Return a demonstrator that lifts."""
        # 9. A scripted expert with human-like noise, with a random stream of its own.
        return LiftExpert(self, seed)


class LiftExpert:
    """Lifts, with a trembling hand."""

    def __init__(self, env: LiftAboveLine, seed: int) -> None:
        self._env = env
        self._generator = expert_generator(seed)

    def act(self) -> NDArray[np.float64]:
        """Return the next change of the target (3,), m."""
        return np.array([0.0, 0.0, 0.006]) + self._generator.normal(0.0, 0.001, 3)
