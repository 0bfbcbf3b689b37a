"""Time as something that is passed in, so that tests and simulations run faster than the wall."""

from __future__ import annotations

import math
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Monotonic time, s. Never goes back; its zero means nothing."""
        ...

    def wall(self) -> float:
        """Time of day, s since 1970-01-01 UTC. May jump when the computer's clock is set."""
        ...

    def sleep_until(self, t: float) -> float:
        """Wait until `now()` reaches `t`, and say by how much it was missed.

        Args:
            t: Monotonic time, s.

        Returns:
            Lateness in s, >= 0; more than a few milliseconds when `t` was already past on entry.
        """
        ...


class WallClock:
    """The computer's own clocks."""

    def now(self) -> float:
        """Monotonic time, s."""
        return time.monotonic()

    def wall(self) -> float:
        """Time of day, s since 1970-01-01 UTC."""
        return time.time()

    def sleep_until(self, t: float) -> float:
        """Sleep until `now()` reaches `t` (s); returns the lateness in s.

        Raises:
            ValueError: `t` is not finite.
        """
        _finite("sleep_until", t)
        while (left := t - time.monotonic()) > 0.0:
            time.sleep(left)
        return time.monotonic() - t


class SimulatedClock:
    """A clock that moves only when it is told to, and then exactly.

    `sleep_until(t)` sets `now()` to `t` and takes no time; a `t` in the past changes nothing. The time of day
    keeps a fixed distance from the monotonic time unless `set_wall` makes it jump.

    Args:
        start: First value of `now()`, s.
        wall_start: First value of `wall()`, s since 1970-01-01 UTC.
    """

    def __init__(self, start: float = 0.0, wall_start: float = 0.0) -> None:
        self._now = _finite("start", start)
        self._wall_offset = _finite("wall_start", wall_start) - self._now

    def now(self) -> float:
        """Monotonic time, s."""
        return self._now

    def wall(self) -> float:
        """Time of day, s since 1970-01-01 UTC."""
        return self._now + self._wall_offset

    def sleep_until(self, t: float) -> float:
        """Move to `t` (s) at once if it lies ahead; returns the lateness in s, 0 unless `t` was past.

        Raises:
            ValueError: `t` is not finite.
        """
        late = self._now - _finite("sleep_until", t)
        if late >= 0.0:
            return late
        self._now = t
        return 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass, as work that takes `seconds` would.

        Raises:
            ValueError: `seconds` is negative or not finite; a monotonic clock never goes back.
        """
        if _finite("advance", seconds) < 0.0:
            raise ValueError(f"advance({seconds}) would turn a monotonic clock back; give seconds >= 0.")
        self._now += seconds

    def set_wall(self, wall: float) -> None:
        """Make the time of day jump to `wall` (s), as a time server does; `now()` does not move."""
        self._wall_offset = _finite("set_wall", wall) - self._now


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value}; a finite number of seconds is needed.")
    return float(value)
