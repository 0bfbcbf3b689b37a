"""Spiral search for a hole: the scripted rival of a refined policy, with the same sensors.

It follows the base until the wrist feels the block, then moves the tip outwards along an Archimedean spiral
around the estimated hole while it pushes lightly, and sinks once the tip drops in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data import config as configuration
from robot_rl.correct.corrector import Correction, Corrector, CorrectorInput
from robot_rl.correct.history import require_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

STATE, ESTIMATE, WRENCH = "observation.state", "observation.environment_state", "observation.wrench"
_TOOL, _LEAD, _PUSH = slice(0, 3), slice(6, 9), 2
"""Where `observation.state` holds the tool point and the target's lead over it, the wrench its z force."""


@dataclass(frozen=True)
class SpiralConfig:
    """A spiral search; lengths in m, speeds in m per control step.

    Attributes:
        contact_n: Push along the tool at which the block counts as touched, N.
        pitch_m: Distance between turns.
        start_radius_m: Where the spiral starts.
        end_radius_m: Where it starts again from the middle.
        speed_m: Along the spiral.
        press_m: How far the target is held below the tip while searching.
        drop_m: Fall below the point of contact at which the hole counts as found.
        sink_m: How far the target is held below the tip in the hole.
    """

    contact_n: float = 2.0
    pitch_m: float = 0.0015
    start_radius_m: float = 0.0012
    end_radius_m: float = 0.0045
    speed_m: float = 0.0015
    press_m: float = 0.0003
    drop_m: float = 0.0006
    sink_m: float = 0.004

    def __post_init__(self) -> None:
        """Check that every quantity is positive and the spiral has room."""
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        if self.start_radius_m >= self.end_radius_m:
            raise ValueError(f"start_radius_m {self.start_radius_m} must be below {self.end_radius_m}.")


class Phase(IntEnum):
    """What a row is about."""

    FOLLOW = 0
    SEARCH = 1
    SINK = 2


@dataclass
class Search:
    """The search of one row."""

    config: SpiralConfig
    phase: Phase = Phase.FOLLOW
    surface_m: float = 0.0
    """height of the tip when it touched the block"""
    angle_rad: float = 0.0
    """how far along the spiral"""

    def aim(
        self, tool: NDArray[np.float64], estimate: NDArray[np.float64], push_n: float
    ) -> NDArray[np.float64] | None:
        """Where the target should be.

        Args:
            tool: measured tip (3,), base frame, m.
            estimate: estimated centre of the hole's mouth (3,), base frame, m.
            push_n: of the tool on the world, along the tool.

        Returns:
            target (3,), base frame, m; None to follow the base.
        """
        config = self.config
        if self.phase is Phase.FOLLOW:
            if push_n < config.contact_n:
                return None
            self.phase, self.surface_m = Phase.SEARCH, float(tool[2])
            self.angle_rad = 2 * np.pi * config.start_radius_m / config.pitch_m
        # A tip that sprang out of the hole's edge searches on from where it was.
        self.phase = Phase.SINK if self.surface_m - tool[2] > config.drop_m else Phase.SEARCH
        if self.phase is Phase.SINK:
            return tool - [0.0, 0.0, config.sink_m]
        sideways = estimate[:2] + self._advance()
        return np.array([*sideways, tool[2] - config.press_m])

    def _advance(self) -> NDArray[np.float64]:
        """Go one step along the spiral; the point there, (2,), m from the centre."""
        per_radian = self.config.pitch_m / (2 * np.pi)
        self.angle_rad += self.config.speed_m / np.hypot(per_radian, per_radian * self.angle_rad)
        radius = per_radian * self.angle_rad
        if radius > self.config.end_radius_m:
            radius = self.angle_rad = 0.0
        return np.array([np.cos(self.angle_rad), np.sin(self.angle_rad)]) * radius


class SpiralSearch(Corrector):
    """Searches for the hole by touch where the base only aims; keeps the search of each row.

    Reads the measured tool point, the target's lead, the estimate and the wrench. Actions are changes of the
    target (3,) in m, base frame, and the tool points down.
    """

    def __init__(self, config: SpiralConfig | None = None) -> None:
        self.config = config or SpiralConfig()
        self._rows: dict[int, Search] = {}

    def begin_episode(self, rows: NDArray[np.int64]) -> None:
        """Forget what the given rows felt."""
        self._rows |= {int(row): Search(self.config) for row in rows}

    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Correct the base actions of one step; see `Corrector.correct`."""
        require_keys(request.observation, (STATE, ESTIMATE, WRENCH))
        state, relative, wrench = (
            np.asarray(request.observation[key], np.float64) for key in (STATE, ESTIMATE, WRENCH)
        )
        action = request.base_action
        phase = np.zeros(len(action))
        for row, base in enumerate(request.base_action):
            tool, target = state[row, _TOOL], state[row, _TOOL] + state[row, _LEAD]
            search = self._rows[row]
            # The wrench is what the world does to the tool, whose z axis points out of the hand.
            aim = search.aim(tool, tool + relative[row], -wrench[row, _PUSH])
            if aim is not None:
                action[row] = base + gain * (aim - target - base)
            phase[row] = search.phase
        return Correction(action, info={"phase": phase})

    def payload(self) -> dict[str, Any]:
        """Its settings."""
        payload: dict[str, Any] = configuration.to_dict(self.config)
        return payload

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing: it has learned nothing."""
        return {}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a saved corrector."""
        del tensors
        return cls(configuration.from_dict(SpiralConfig, payload))
