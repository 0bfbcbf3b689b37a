"""PegInsert: a square peg, and a square hole that a camera sees a millimetre or two beside its true place."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.arm_task import ARM_FEATURES, FINGERTIPS_M, HOME, ArmTask, point_option
from sim.control import CartesianConfig
from sim.env import ASSETS, Judgement
from sim.gel import GelGrip
from sim.peg_expert import PegExpert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation

FILE = "peg_insert.xml"
DEPTH_M = 0.02
"""Depth of the hole."""
CLEARANCE_M = 0.001
"""Gap on each side of a centred peg (radial); 2 mm over the whole width."""
PEG_HALF_WIDTH_M = 0.008
"""Half the side of the peg's square section."""
TOOL_M = 0.05
"""Distance of the peg's tip from the fingertips' centre."""
MAX_FORCE_N = 40.0
"""Greatest contact force of a success: the sum of the normal forces between peg and block."""
MAX_PENETRATION_M = 0.0002
"""Greatest overlap of peg and block of a success."""
_WORKPLACE = np.array([0.5, 0.0, 0.52])
_WIDTH_M = 2 * PEG_HALF_WIDTH_M
_CONTACTS = 12
_CONTROL = CartesianConfig(tool_length_m=TOOL_M)


class PegInsert(ArmTask):
    """Insert a 16 mm square peg, held between gel pads, into a hole that is 1 mm wider on each side.

    Per episode the hole, the start and the error of the camera-like estimate are drawn; the estimate stays
    fixed over the episode, as that of a camera that looks once from a calibrated, slightly wrong place.
    Nothing of the true hole enters an observation before the peg touches it. Success: the peg's tip is
    deeper than 80 % of the hole (20 mm). The episode fails once the contact force between peg and block (sum
    of the normal forces) exceeds 40 N or the overlap 0.2 mm at any physics step.

    Args:
        estimate_std_m: standard deviation of the estimate's error per axis, in m.
        estimate_clip_std: errors are clipped at this many standard deviations.
        **options: `shifts`, `cameras`, `image_size`, `render_mode`; see `ArmTask`. Reset options: `hole`
            (centre of its mouth, (3,) m, base frame) and `estimate_error` ((3,) m).
    """

    task_text = "insert the peg into the hole"
    max_steps = 100
    reset_options = ("hole", "estimate_error")
    features = {  # noqa: RUF012 - read-only by convention
        **ARM_FEATURES,
        "observation.environment_state": Feature(
            (3,),
            "float32",
            "m",
            ("hole.x", "hole.y", "hole.z"),
            "Estimated centre of the hole's mouth minus measured tool point (the peg's tip), base frame.",
        ),
    }
    action_spec = ActionSpec(
        (ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=(-0.008,), high=(0.008,)),), 20.0
    )

    def __init__(
        self,
        *,
        estimate_std_m: float = 0.0014,
        estimate_clip_std: float = 2.5,
        **options: Any,  # noqa: ANN401 - handed on
    ) -> None:
        if not 0 <= estimate_std_m <= 0.01:
            raise ValueError(f"estimate_std_m is {estimate_std_m}; give 0 to 0.01 m.")
        if not estimate_clip_std >= 0:
            raise ValueError(f"estimate_clip_std is {estimate_clip_std}; give 0 or more, inf for no limit.")
        touch = GelGrip(PEG_HALF_WIDTH_M)
        touch.bind(_model())
        super().__init__(_model(), touch, control=_CONTROL, **options)
        self.estimate_std_m = estimate_std_m
        self.estimate_clip_std = estimate_clip_std
        self._tip = self.model.site("tip").id
        self._rim = int(self.model.sensor("rim").adr[0])

    def _begin(self, options: Mapping[str, Any]) -> None:
        rng = self.np_random
        hole = _WORKPLACE + np.append(rng.uniform(-0.03, 0.03, 2), rng.uniform(-0.005, 0.005))
        error = (
            np.clip(rng.standard_normal(3), -self.estimate_clip_std, self.estimate_clip_std)
            * self.estimate_std_m
        )
        start = hole + np.append(rng.uniform(-0.02, 0.02, 2), rng.uniform(0.02, 0.04))
        hole = point_option(options, "hole", hole)
        error = point_option(options, "estimate_error", error)
        joints = self._inverse.solve(HOME, start, iterations=12)
        self.data.mocap_pos[0] = hole
        self.start_arm(joints, _WIDTH_M)
        self.memory.update(
            estimate=hole + error + np.array(self.shifts.estimate_offset_m),
            worst=np.zeros(2),
            contact=np.zeros(2),
        )
        self.run_physics(joints, _WIDTH_M)

    def _advance(self, action: NDArray[np.float64]) -> None:
        self.move(self.delayed(action), _WIDTH_M)
        rim = self.log[:, self._rim : self._rim + 4 * _CONTACTS].reshape(-1, _CONTACTS, 4)
        force = float(rim[:, :, 0].sum(axis=1).max())
        overlap = float(max(0.0, -rim[:, :, 3].min()))
        self.memory["contact"] = np.array([force, overlap])
        self.memory["worst"] = np.maximum(self.memory["worst"], [force, overlap])

    def _observe(self) -> Observation:
        observation = self.arm_observation()
        relative = self.memory["estimate"] - self._measured.position
        return observation | {"observation.environment_state": relative.astype(np.float32)}

    def _judge(self) -> Judgement:
        depth = float(self.data.mocap_pos[0, 2] - self.data.site_xpos[self._tip, 2])
        force = self.memory["contact"][0]
        max_force, max_overlap = self.memory["worst"]
        aside = np.abs(self.data.site_xpos[self._tip, :2] - self.data.mocap_pos[0, :2]).max()
        inside = depth > 0.8 * DEPTH_M and aside < 0.008
        void = max_force > MAX_FORCE_N or max_overlap > MAX_PENETRATION_M
        info = {
            "depth_m": depth,
            "contact": bool(force > 0),
            "contact_force_n": float(force),
            "max_contact_force_n": float(max_force),
            "penetration_m": float(max_overlap),
            "void": bool(void),
        }
        return Judgement(success=bool(inside and not void), failed=bool(void), info=info)

    def expert(self, seed: int) -> PegExpert:
        """Return a scripted demonstrator that knows the true hole; see `PegExpert`."""
        return PegExpert(self, seed)

    def straight(self, seed: int = 0) -> PegExpert:
        """Return the same motion without noise or recovery, aimed at the estimate: blind trust."""
        return PegExpert(self, seed, trust_estimate=True, noise=0.0)

    @property
    def contact_force_n(self) -> float:
        """Greatest contact force between peg and block within the last control step, N."""
        return float(self.memory["contact"][0])

    @property
    def hole(self) -> NDArray[np.float64]:
        """True centre of the hole's mouth (3,), base frame, m: for experts and judges only."""
        centre: NDArray[np.float64] = self.data.mocap_pos[0].copy()
        return centre

    @property
    def estimate(self) -> NDArray[np.float64]:
        """Estimated centre of the hole's mouth (3,), base frame, m."""
        return self.memory["estimate"].copy()


@functools.cache
def _model() -> mujoco.MjModel:
    """Compile the scene with the peg in the hand, once per process."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / FILE))
    peg = mujoco.MjSpec.from_file(str(ASSETS / "peg.xml"))
    spec.body("hand").add_frame(pos=[0, 0, FINGERTIPS_M]).attach_body(peg.body("peg"), "", "")
    model = spec.compile()
    GelGrip(PEG_HALF_WIDTH_M).configure(model)
    return model
