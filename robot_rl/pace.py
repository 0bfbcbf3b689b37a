"""Keeping the control rate, and saying when it was not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardware.clock import Clock

MISSED = 0.25
"""Share of the period by which a step may begin late before it counts as missed."""


class Pace:
    """Begins each control step one period after the last.

    After a stall the next step begins at once and the pace goes on from there: steps that were missed are not
    made up for in a burst, which a robot would feel.

    Args:
        clock: Which is waited for.
        rate_hz: Control rate.
    """

    def __init__(self, clock: Clock, rate_hz: float) -> None:
        self._clock, self._period = clock, 1.0 / rate_hz
        self._due = clock.now()
        self._missed, self._latest = 0, 0.0

    def wait(self) -> None:
        """Wait for the next step."""
        self._due += self._period
        late = self._clock.sleep_until(self._due)
        if late > MISSED * self._period:
            self._missed += 1
            self._latest = max(self._latest, late)
            self._due += late

    def facts(self) -> dict[str, float]:
        """How many steps were missed and by how much at most, s; empty if none was."""
        return {"missed_ticks": self._missed, "longest_lateness_s": self._latest} if self._missed else {}
