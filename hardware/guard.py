"""The last thing before the robot: what leaves it is finite, fresh, slow and within the limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hardware.rotations import Form, angle_between

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hardware.action_spec import ActionSpec


@dataclass(frozen=True)
class GuardConfig:
    """What the guard lets through.

    Attributes:
        max_age_s: Greatest age of a command, s.
        max_speed: Greatest speed of each dimension, its unit per s; one number stands for all, None for no
            limit. Turns of absolute poses have `max_turn_rad_s` instead.
        max_turn_rad_s: Greatest turning speed of absolute poses, rad/s.
        max_lead_s: How far in the future a command's time may lie before the clocks are thought to disagree,
            s.
    """

    max_age_s: float = 0.2
    max_speed: tuple[float, ...] | None = None
    max_turn_rad_s: float = 1.0
    max_lead_s: float = 0.01

    def __post_init__(self) -> None:
        """Check that every limit is positive."""
        for name in ("max_age_s", "max_turn_rad_s", "max_lead_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; a positive number is needed.")
        if self.max_speed is not None and not all(math.isfinite(v) and v > 0 for v in self.max_speed):
            raise ValueError(f"max_speed is {self.max_speed}; positive numbers are needed.")


@dataclass(frozen=True, eq=False)
class Guarded:
    """What may be sent to the robot.

    Attributes:
        action: (A,), within the limits.
        because: Why it differs from the command; empty when it does not.
        verdict: ``"passed"``, ``"limited"`` (brought within limits or speed), or ``"held"`` (the command was
            refused, the robot stays where it is).
    """

    action: NDArray[np.float64]
    because: str
    verdict: Literal["passed", "limited", "held"]


class SafetyGuard:
    """Checks one robot's commands, one per control step.

    Holding repeats the last absolute targets and sends zero for deltas. Speeds are per nominal control step,
    so a late command may not jump further than a punctual one. After `stop`, or once the clock went back,
    everything is held until `reset` (or until the clock has caught up).

    Args:
        spec: Whose limits hold.
        config: What is let through.

    Raises:
        ValueError: The speeds do not fit the specification.
    """

    def __init__(self, spec: ActionSpec, config: GuardConfig | None = None) -> None:
        self.spec = spec
        self.config = config or GuardConfig()
        self._step = self._steps_per_dimension()
        self._delta = np.concatenate([np.full(group.size, group.mode == "delta") for group in spec.groups])
        self._turns = [
            (spec.slice(group.name), cast("Form", group.rotation))
            for group in spec.groups
            if group.mode == "absolute" and group.rotation != "none"
        ]
        self._last: NDArray[np.float64] | None = None
        self._now = -math.inf
        self._stopped = ""

    @property
    def stopped(self) -> str:
        """Why everything is held; empty when the guard is not stopped."""
        return self._stopped

    def reset(self, current: ArrayLike, now: float) -> None:
        """Start, or go on after a stop.

        Args:
            current: Action that leaves the robot where it is, (A,); deltas are taken as 0.
            now: Monotonic time, s.

        Raises:
            ValueError: It is not finite or not within the limits: the robot stands where no command may lead.
        """
        if not math.isfinite(now):
            raise ValueError(f"now is {now}; a finite number of seconds is needed.")
        self._last = self.spec.validate(self.spec.hold(current))
        self._now = now
        self._stopped = ""

    def stop(self, because: str) -> None:
        """Hold everything until `reset`.

        Args:
            because: Why, for the operator.
        """
        self._stopped = because or "stopped without a reason"

    def check(self, action: object, stamp: float, now: float) -> Guarded:
        """Decide what is sent.

        Args:
            action: The command, (A,) by right; anything else is held.
            stamp: Monotonic time when it was made, s.
            now: Monotonic time, s.

        Returns:
            The action to send; always within the limits.

        Raises:
            RuntimeError: `reset` was never called, so that nobody knows where the robot is.
        """
        if self._last is None:
            raise RuntimeError("check before reset: tell the guard first where the robot is.")
        refused = self._stopped or self._refuse_time(_seconds(stamp), _seconds(now))
        wanted, why = self._read(action)
        if refused or wanted is None:
            return self._hold(refused or why)
        inside = np.clip(wanted, self.spec.low, self.spec.high)
        turning = self._refuse_turn(inside)
        if turning:
            return self._hold(turning)
        slow = self._slow(inside)
        because = self._difference(wanted, inside, slow)
        self._last = slow
        return Guarded(slow.copy(), because, "limited" if because else "passed")

    def _refuse_time(self, stamp: float, now: float) -> str:
        if not (math.isfinite(stamp) and math.isfinite(now)):
            return f"the command's time {stamp} or the clock {now} is no finite number"
        before, self._now = self._now, max(now, self._now)
        if now < before:
            return f"the clock went back by {before - now:.3f} s"
        if now - stamp > self.config.max_age_s:
            return f"the command is {now - stamp:.3f} s old; {self.config.max_age_s} s are allowed"
        if stamp - now > self.config.max_lead_s:
            return f"the command comes {stamp - now:.3f} s from the future; the clocks disagree"
        return ""

    def _read(self, action: object) -> tuple[NDArray[np.float64] | None, str]:
        try:
            wanted = np.array(action, np.float64)
        except (TypeError, ValueError, OverflowError):
            return None, f"the command is a {type(action).__name__} and not numbers"
        if wanted.shape != (self.spec.size,):
            return None, f"the command has shape {wanted.shape}; ({self.spec.size},) is needed"
        if not np.isfinite(wanted).all():
            bad = int(np.flatnonzero(~np.isfinite(wanted))[0])
            return None, f"{self.spec.names[bad]} is {wanted[bad]}"
        return wanted, ""

    def _refuse_turn(self, action: NDArray[np.float64]) -> str:
        assert self._last is not None
        allowed = self.config.max_turn_rad_s / self.spec.rate_hz
        for where, form in self._turns:
            name = next(g.name for g in self.spec.groups if self.spec.slice(g.name) == where)
            try:
                angle = float(angle_between(self._last[where][3:], action[where][3:], form))
            except ValueError as error:
                return f"{name} has no rotation: {error}"
            if angle > allowed + 1e-9:
                return f"{name} turns by {angle:.3f} rad in one step; {allowed:.3f} rad are allowed"
        return ""

    def _slow(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        assert self._last is not None
        start = np.where(self._delta, 0.0, self._last)
        slow = start + np.clip(action - start, -self._step, self._step)
        # An action that is slow enough passes bit for bit, not by way of a difference and a sum.
        slow = np.where(np.abs(action - start) <= self._step, action, slow)
        return np.clip(slow, self.spec.low, self.spec.high)

    def _hold(self, because: str) -> Guarded:
        assert self._last is not None
        self._last = self.spec.hold(self._last)
        return Guarded(self._last.copy(), because, "held")

    def _difference(
        self, wanted: NDArray[np.float64], inside: NDArray[np.float64], slow: NDArray[np.float64]
    ) -> str:
        outside = [self.spec.names[i] for i in np.flatnonzero(wanted != inside)]
        fast = [self.spec.names[i] for i in np.flatnonzero(inside != slow)]
        parts = [f"{', '.join(outside)} beyond the limits"] if outside else []
        parts += [f"{', '.join(fast)} too fast"] if fast else []
        return "; ".join(parts)

    def _steps_per_dimension(self) -> NDArray[np.float64]:
        size, speed = self.spec.size, self.config.max_speed
        if speed is None:
            return np.full(size, np.inf)
        if len(speed) not in {1, size}:
            raise ValueError(
                f"max_speed has {len(speed)} numbers; 1 or {size} are needed: {self.spec.names}."
            )
        step = np.broadcast_to(np.array(speed), (size,)) / self.spec.rate_hz
        return np.where(self._rotation_dimensions(), np.inf, step)

    def _rotation_dimensions(self) -> NDArray[np.bool_]:
        flags = np.zeros(self.spec.size, bool)
        for group in self.spec.groups:
            if group.mode == "absolute" and group.rotation != "none":
                flags[self.spec.slice(group.name)][3:] = True
        return flags


def _seconds(value: object) -> float:
    try:
        return float(value) if isinstance(value, float | int | np.number) else math.nan
    except OverflowError:  # an integer beyond every float
        return math.nan
