"""Where a recording is continuous, and who acted in it: runs of one source, cut at pauses and gaps.

Two boundaries are kept apart. A *break* is where time was lost: a pause, an emergency stop, a gap. No
transition and no chunk may reach across one. A change of *source* is no break: a critic may look across it,
an actor's chunk may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from data.events import EventKind
from data.steps import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.records import Episode

GAP = 1.5
"""Control periods between two steps beyond which time was lost between them."""
_BREAKING = (EventKind.PAUSE, EventKind.RESUME, EventKind.EMERGENCY_STOP)
"""Events between two steps that end a continuous recording."""


@dataclass(frozen=True)
class Segment:
    """Steps start to stop - 1 of one source, without a break between them.

    Attributes:
        start: First step.
        stop: One past the last step.
        source: Who acted.
    """

    start: int
    stop: int
    source: Source

    def __len__(self) -> int:
        """Number of steps."""
        return self.stop - self.start


def control_period(times: NDArray[np.float64]) -> float:
    """Usual interval between steps, s: the lower median; infinite for fewer than two steps.

    Args:
        times: (T,), s.
    """
    return _usual(times[1:] - times[:-1])


def sources(episode: Episode) -> NDArray[np.str_]:
    """Who really acted at each step, (T,) of text.

    That is the recorded source, except for two kinds of steps that the events correct: steps sent between a
    pause and its resume are paused, and a first human step that was sent before the takeover was pressed is
    still the policy's.
    """
    if not episode.events:
        return episode.source
    found = episode.source.copy()
    times, events = episode.monotonic_time, sorted(episode.events, key=lambda event: event.time)
    since: float | None = None
    for event in events:
        if event.kind is EventKind.PAUSE and since is None:
            since = event.time
        elif event.kind is EventKind.RESUME and since is not None:
            found[(times >= since) & (times < event.time)] = Source.PAUSED
            since = None
    if since is not None:
        found[times >= since] = Source.PAUSED
    pressed = [event.time for event in events if event.kind is EventKind.TAKEOVER]
    if pressed:
        _give_back_key_press(found, times, pressed)
    return found


def broken(
    episode: Episode, period: float | None = None, found: NDArray[np.str_] | None = None
) -> NDArray[np.bool_]:
    """Whether time was lost after each step, (T,): no transition leads from it to the next observation.

    That is so before and during a pause, before a step that came later than 1.5 control periods by either
    clock or earlier by the monotonic one, and where a pause, a resume or an emergency stop was recorded
    between two steps. The last step is not broken: its next observation was recorded.

    Args:
        episode: The episode.
        period: Control period, s; the usual interval between unpaused steps when None; infinite when times
            say nothing, as in a simulation that steps as fast as it can.
        found: Result of `sources`, when at hand.
    """
    found = sources(episode) if found is None else found
    paused = found == Source.PAUSED
    lost: NDArray[np.bool_] = paused.copy()
    lost[:-1] |= paused[1:]
    some = bool(paused.any())
    for times in (episode.monotonic_time, episode.wall_time):
        gaps = times[1:] - times[:-1]
        if times is episode.monotonic_time:
            lost[:-1] |= gaps < 0
        usual = period
        if usual is None:
            usual = control_period(times[~paused]) if some else _usual(gaps)
        if usual > 0:
            lost[:-1] |= gaps > GAP * usual
    if not episode.events:
        return lost
    stamps = np.array([event.time for event in episode.events if event.kind in _BREAKING])
    after = np.searchsorted(np.maximum.accumulate(episode.monotonic_time), stamps, side="left")
    lost[after[(after > 0) & (after < len(lost))] - 1] = True
    return lost


def segments(episode: Episode, period: float | None = None) -> tuple[Segment, ...]:
    """Runs of one source, in order; paused steps are in none of them.

    Args:
        episode: The episode.
        period: As for `broken`.
    """
    found = sources(episode)
    return runs(found, broken(episode, period, found))


def runs(found: NDArray[np.str_], lost: NDArray[np.bool_]) -> tuple[Segment, ...]:
    """Segments of sources (T,) that are cut at their changes and after the steps where time was lost (T,)."""
    edge = np.flatnonzero((found[1:] != found[:-1]) | lost[:-1]) + 1
    bounds = [0, *edge.tolist(), len(found)]
    return tuple(Segment(a, b, Source(found[a])) for a, b in pairwise(bounds) if found[a] != Source.PAUSED)


def numbers(parts: Sequence[Segment], length: int) -> NDArray[np.int64]:
    """Number of the segment each of T steps is in, (T,); -1 in none."""
    number = np.full(length, -1, np.int64)
    for index, part in enumerate(parts):
        number[part.start : part.stop] = index
    return number


def run_numbers(found: NDArray[np.str_], lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number of the one of `runs` that each step is in, (T,); -1 when paused."""
    return _numbered(found == Source.PAUSED, found[1:] != found[:-1], lost)


def blocks(found: NDArray[np.str_], lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number of the continuous recording each step is in, whoever acted, (T,); -1 when paused."""
    paused = found == Source.PAUSED
    return _numbered(paused, paused[1:] != paused[:-1], lost)


def _numbered(
    paused: NDArray[np.bool_], change: NDArray[np.bool_], lost: NDArray[np.bool_]
) -> NDArray[np.int64]:
    begins = ~paused
    begins[1:] &= change | lost[:-1]
    number = begins.cumsum() - 1
    number[paused] = -1
    return number


def _usual(gaps: NDArray[np.float64]) -> float:
    """The lower median; infinite of none."""
    if not len(gaps):
        return float("inf")
    middle = (len(gaps) - 1) // 2
    return float(np.partition(gaps, middle)[middle])


def _give_back_key_press(
    found: NDArray[np.str_], times: NDArray[np.float64], pressed: Sequence[float]
) -> None:
    human = found == Source.HUMAN
    for first in np.flatnonzero(human[1:-1] & ~human[:-2] & human[2:]) + 1:
        if any(times[first] < key < times[first + 1] for key in pressed):
            found[first] = found[first - 1]
