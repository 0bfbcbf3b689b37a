"""PickPlace: put the can into the bin that the task text names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.arm_task import ARM_FEATURES, HOME, ArmTask
from sim.control import FREE_MOTION
from sim.env import Judgement, load_model
from sim.pick_place_expert import PickPlaceExpert
from sim.tactile import ContactTouch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sim.task import Observation

BINS = ("red", "blue")
TOLD = ("drawn", "other")
OPEN_M = 0.08
BENCH_M = 0.48
_CAN_HALF_M = 0.04
_INSIDE_M = 0.045
_RIM_M = 0.04
_NAMES = tuple(f"{thing}.{axis}" for thing in ("can", "red", "blue") for axis in "xyz")


class PickPlace(ArmTask):
    """Grasp the can by friction and let it go in the named bin.

    Success: the can stands or lies in the named bin, is not held, and has come to rest. Letting it come to
    rest in the other bin, or drop below the bench, ends the episode without success.

    Reset options: `bin` (red or blue), whatever `bins` says.
    """

    max_steps = 200
    reset_options = ("bin",)
    features = {  # noqa: RUF012 - read-only by convention
        **ARM_FEATURES,
        "observation.environment_state": Feature(
            (9,),
            "float32",
            "m",
            _NAMES,
            "Centres of the can and of both bins' floors minus measured tool point, base frame.",
        ),
    }
    action_spec = ActionSpec(
        (
            ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=(-0.015,), high=(0.015,)),
            ActionGroup(
                "gripper", 1, "absolute", "gripper", unit="m", low=(0.0,), high=(OPEN_M,), names=("width",)
            ),
        ),
        20.0,
    )

    def __init__(
        self,
        *,
        bins: Sequence[str] | str = BINS,
        told: str = "drawn",
        **options: Any,  # noqa: ANN401 - handed on
    ) -> None:
        """Build the task.

        Args:
            bins: the bins of which one is drawn at a reset, as a sequence or as text with commas. A seed with
                one bin differs from the same seed with both in nothing but the bin.
            told: which bin the text names: the `drawn` one, in which the can belongs, or the `other` one. The
                second is a control: whoever reads the text must fail.
            **options: `shifts`, `cameras`, `image_size`, `render_mode`; see `ArmTask`.

        Raises:
            ValueError: for another bin or none, another `told`, or as `ArmTask` says.
        """
        self._bins = _some_bins(bins)
        if told not in TOLD:
            raise ValueError(f"told is {told!r}; allowed: {', '.join(TOLD)}.")
        self._told = told
        model = load_model("pick_place.xml")
        super().__init__(model, ContactTouch(model), control=FREE_MOTION, **options)
        self._can = self.model.body("can").id
        self._can_joint = int(self.model.joint("can").qposadr[0])
        self._touched = [int(self.model.sensor(f"touch_{side}").adr[0]) for side in ("left", "right")]

    def _begin(self, options: Mapping[str, Any]) -> None:
        rng = self.np_random
        drawn = BINS[int(rng.integers(len(BINS)))]  # of all, so that a seed keeps its scene
        chosen = options.get("bin", drawn if drawn in self._bins else self._bins[0])
        if chosen not in BINS:
            raise ValueError(f"reset option bin is {chosen!r}; allowed: {', '.join(BINS)}.")
        self.memory["bin"] = np.array(BINS.index(chosen))
        self._restored()
        self.data.mocap_pos[:] = [[0.5, 0.17, BENCH_M], [0.5, -0.17, BENCH_M]]
        self.data.mocap_pos[:, :2] += rng.uniform(-0.01, 0.01, (2, 2))
        can = [0.5 + rng.uniform(-0.04, 0.04), rng.uniform(-0.05, 0.05), BENCH_M + _CAN_HALF_M]
        self.data.qpos[self._can_joint : self._can_joint + 7] = [*can, 1.0, 0.0, 0.0, 0.0]
        start = np.array([0.5, 0.0, 0.65]) + rng.uniform(-0.03, 0.03, 3)
        joints = self._inverse.solve(HOME, start, iterations=12)
        self.start_arm(joints, OPEN_M)
        self.run_physics(joints, OPEN_M)

    def _restored(self) -> None:
        drawn = int(self.memory["bin"])
        self.task_text = f"put the can into the {BINS[drawn if self._told == 'drawn' else 1 - drawn]} bin"

    def _advance(self, action: NDArray[np.float64]) -> None:
        now = self.delayed(action)
        self.move(now[:3], float(now[3]))

    def _observe(self) -> Observation:
        points = np.stack([self.can, *self.data.mocap_pos]) + np.array(self.shifts.estimate_offset_m)
        relative = (points - self.tool_position).ravel()
        return self.arm_observation() | {"observation.environment_state": relative.astype(np.float32)}

    def _judge(self) -> Judgement:
        held = self.held
        speed = float(np.linalg.norm(self.data.cvel[self._can, 3:]))
        resting = not held and speed < 0.05
        wanted = int(self.memory["bin"])
        inside = [self._inside(i) for i in range(len(BINS))]
        fallen = bool(self.can[2] < BENCH_M)
        return Judgement(
            success=bool(resting and inside[wanted]),
            failed=bool(resting and inside[1 - wanted]) or fallen,
            info={
                "held": held,
                "in_red": inside[0],
                "in_blue": inside[1],
                "can_height_m": float(self.can[2] - BENCH_M),
            },
        )

    def _inside(self, index: int) -> bool:
        offset = self.can - self.data.mocap_pos[index]
        return bool(np.abs(offset[:2]).max() < _INSIDE_M and offset[2] < _RIM_M + 0.02)

    @property
    def can(self) -> NDArray[np.float64]:
        """True centre of the can (3,), base frame, m."""
        centre: NDArray[np.float64] = self.data.xpos[self._can].copy()
        return centre

    @property
    def bin_position(self) -> NDArray[np.float64]:
        """True centre of the floor of the bin that the can belongs in (3,), base frame, m."""
        centre: NDArray[np.float64] = self.data.mocap_pos[int(self.memory["bin"])].copy()
        return centre

    @property
    def held(self) -> bool:
        """Whether a pad touched the can in the last physics step."""
        return bool((self.log[-1, self._touched] > 0).any())

    def expert(self, seed: int) -> PickPlaceExpert:
        """Return a scripted demonstrator that knows where everything is."""
        return PickPlaceExpert(self, seed)


def _some_bins(bins: Sequence[str] | str) -> tuple[str, ...]:
    names = tuple(bins.split(",") if isinstance(bins, str) else bins)
    if not names or any(name not in BINS for name in names):
        raise ValueError(f"bins is {bins!r}; allowed: one or more of {', '.join(BINS)}.")
    return names
