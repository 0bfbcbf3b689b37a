"""How the hardware of a test can differ from the hardware of training. All off by default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

_THREE = (0.0, 0.0, 0.0)
_SEVEN = (0.0,) * 7


@dataclass(frozen=True)
class Shifts:
    """Differences between the simulated robot and the one the policy was trained on.

    Attributes:
        servo_bias_m: constant error of the reached tool position in the base frame, m.
        encoder_offset_rad: constant error of each measured joint angle, rad; kinematics believe it.
        friction_scale: factor on every sliding friction coefficient.
        payload_kg: mass fixed to the hand that nobody compensates, kg.
        estimate_offset_m: constant error of camera-like estimates in the base frame, m.
        camera_offset_m: how far each observed camera sits from its place, in its own frame (x right, y up,
            z backwards), m.
        camera_rotation_rad: how each observed camera is turned in its place, a rotation vector in the same
            frame, rad.
        action_delay_steps: control steps by which every action is late.
        kick_probability: probability per control step of a random push on the hand.
        kick_force_n: size of such a push, N, for one control step in a random horizontal direction.
    """

    servo_bias_m: tuple[float, float, float] = _THREE
    encoder_offset_rad: tuple[float, ...] = _SEVEN
    friction_scale: float = 1.0
    payload_kg: float = 0.0
    estimate_offset_m: tuple[float, float, float] = _THREE
    camera_offset_m: tuple[float, float, float] = _THREE
    camera_rotation_rad: tuple[float, float, float] = _THREE
    action_delay_steps: int = 0
    kick_probability: float = 0.0
    kick_force_n: float = 15.0

    def __post_init__(self) -> None:
        """Check lengths and ranges."""
        for item in fields(self):
            value, default = getattr(self, item.name), item.default
            if isinstance(default, tuple) and len(value) != len(default):
                raise ValueError(f"Shifts.{item.name} is {value}; give {len(default)} numbers.")
            if not all(map(math.isfinite, value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"Shifts.{item.name} is {value}; finite numbers are needed.")
            if isinstance(value, float | int) and value < 0:
                raise ValueError(f"Shifts.{item.name} is {value}; it must not be negative.")
        if self.kick_probability > 1:
            raise ValueError(f"Shifts.kick_probability is {self.kick_probability}; it must not exceed 1.")

    @property
    def changes_physics(self) -> bool:
        """Whether an environment needs its own copy of the model for other forces or masses."""
        return self.friction_scale != 1.0 or self.payload_kg != 0.0

    @property
    def moves_cameras(self) -> bool:
        """Whether an environment needs its own copy of the model for other pictures."""
        return any(self.camera_offset_m) or any(self.camera_rotation_rad)


NO_SHIFTS = Shifts()
