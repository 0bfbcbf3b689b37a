"""From where on something counts as wrong, each number with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Thresholds:
    """From where on something counts as wrong.

    Attributes:
        missed: Intervals longer than this many periods miss a sample. Schedulers and USB shift a sample by up
            to half a period; at 1.8 one sample must be missing.
        gap: Intervals longer than this many periods are a gap worth a warning: a robot moves on for two
            periods without being seen.
        missed_share: Share of missed samples that is worth a warning even if each was alone.
        rate: Relative difference of the measured from the declared rate. Clocks of real devices differ by
            less than 1 %; 10 % is another setting (30 instead of 25 Hz).
        frozen_s: A sensor that repeats its last value to the bit for this long while the robot moves is
            frozen. Half a second is longer than any driver buffers.
        frozen_samples: Least number of repeats of a frozen sensor, so that slow sensors get their chance.
        moved: Share of its range that a dimension must travel for the robot to count as moving.
        lively: Share of samples that must differ from the one before for a sensor that never rests; such a
            sensor is frozen when it repeats.
        distinct: Signals with fewer different values are switches (a gripper open or closed); those repeat.
        repeats: Share of repeated samples worth a note.
        saturated: Share of steps at the limit of the action. Clean demonstrations with a small action range
            reach 0.55 on the way to a goal.
        saturated_steps: Least steps of an episode to judge that share.
        constant: Standard deviation relative to the size of the values: below it nothing but noise is left.
        constant_beside: Standard deviation relative to the liveliest dimension of the same quantity.
        constant_floor: Standard deviation below which nothing was measured, whatever the unit.
        lag_steps: Least number of steps to measure a lag with.
        lag_s: The state follows its command within this time on an arm that people can teleoperate; position
            controllers take 0.05 to 0.15 s.
        correlation: Correlation of command and motion below which no lag is stated.
        margin: By how much the correlation at a lag must exceed that at plausible lags.
        lead: Distance between command and state, as a share of the command's range, worth a note.
    """

    missed: float = 1.8
    gap: float = 2.5
    missed_share: float = 0.02
    rate: float = 0.1
    frozen_s: float = 0.5
    frozen_samples: int = 8
    moved: float = 0.1
    lively: float = 0.95
    distinct: int = 8
    repeats: float = 0.1
    saturated: float = 0.6
    saturated_steps: int = 20
    constant: float = 1e-4
    constant_beside: float = 1e-3
    constant_floor: float = 1e-6
    lag_steps: int = 20
    lag_s: float = 0.15
    correlation: float = 0.5
    margin: float = 0.1
    lead: float = 0.3

    def __post_init__(self) -> None:
        """Check that every threshold is a positive number."""
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{item.name} is {value}; a positive number is needed.")
        if self.missed >= self.gap:
            raise ValueError(f"missed is {self.missed}, but must be below gap, which is {self.gap}.")
