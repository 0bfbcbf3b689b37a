"""Checks of time stamps: order, duplicates, gaps, rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.steps import Source
from data.validate.finding import Finding, Kind, Severity
from data.validate.signals import free_running, period, stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from data.records import Episode
    from data.validate.thresholds import Thresholds

STEPS = "steps"
"""What findings call the control steps' own times."""


def check_times(
    episode: Episode, action_spec: Mapping[str, Any] | None, thresholds: Thresholds
) -> Iterator[Finding]:
    """Time stamps of the control steps and of every stream.

    Args:
        episode: What to check.
        action_spec: Its ``rate_hz`` is what the control steps are held to.
        thresholds: From where on something counts as wrong.
    """
    declared = (action_spec or {}).get("rate_hz")
    times = episode.monotonic_time
    if declared and free_running(episode) and _another_rate(period(times), declared, thresholds):
        yield from _order(episode, STEPS, times, np.diff(times))
        rate = 1 / period(times)
        text = (
            f"A simulation that stepped as fast as it could: times are the computer's ({rate:.3g} Hz) and "
            f"not the robot's ({declared:.3g} Hz). Count in steps, not in seconds."
        )
        yield Finding(kind=Kind.RATE, severity=Severity.NOTE, message=text, episode=episode.id, feature=STEPS)
    else:
        yield from _check(episode, STEPS, times, declared, thresholds)
        yield from _clocks(episode, thresholds)
    for key, stream in episode.streams.items():
        yield from _check(episode, stream_name(key), stream.times, None, thresholds)
        yield from _covers(episode, stream_name(key), stream.times, thresholds)


def _check(
    episode: Episode, key: str, times: NDArray[np.float64], declared: float | None, thresholds: Thresholds
) -> Iterator[Finding]:
    if np.isnan(times).all():
        text = "There are no time stamps: gaps and rate cannot be checked. State a rate if it is known."
        yield Finding(
            kind=Kind.NO_TIMES, severity=Severity.NOTE, message=text, episode=episode.id, feature=key
        )
        return
    if not np.isfinite(times).all():
        rows = np.flatnonzero(~np.isfinite(times))
        text = f"{len(rows)} of {len(times)} time stamps are not finite; record again or cut these rows."
        yield Finding.at(
            Kind.NOT_FINITE, Severity.ERROR, text, episode=episode.id, feature=key, times=times, rows=rows
        )
        return
    if len(times) < 2:
        return
    steps = np.diff(times)
    yield from _order(episode, key, times, steps)
    usual = period(times[np.append(True, steps > 0)])
    if usual <= 0:
        return
    yield from _gaps(episode, key, times, steps / usual, thresholds)
    if declared and len(times) > 2 and _another_rate(usual, declared, thresholds):
        text = (
            f"Samples come at {1 / usual:.4g} Hz, {declared:.4g} Hz were declared. Correct the declaration, "
            "or find out why the loop ran at another rate: delta actions mean another speed then."
        )
        rows = np.array([0, len(times) - 1])
        yield Finding.at(
            Kind.RATE, Severity.WARNING, text, episode=episode.id, feature=key, times=times, rows=rows
        )


def _clocks(episode: Episode, thresholds: Thresholds) -> Iterator[Finding]:
    """Whether the time of day went as far between two steps as the monotonic clock did."""
    times, walls = episode.monotonic_time, episode.wall_time
    if len(times) < 2 or not (np.isfinite(times).all() and np.isfinite(walls).all()):
        return
    off = np.diff(walls) - np.diff(times)
    rows = np.flatnonzero(np.abs(off) > thresholds.gap * max(period(times), 0.0)) + 1
    if len(rows):
        text = (
            f"The time of day goes {off[rows[0] - 1]:+.4g} s off the monotonic clock: it was set meanwhile. "
            "Labels take time that passed by either clock for lost; correct wall_time if none was."
        )
        yield Finding.at(
            Kind.CLOCK, Severity.WARNING, text, episode=episode.id, feature=STEPS, times=times, rows=rows
        )


def _another_rate(usual: float, declared: float, thresholds: Thresholds) -> bool:
    return abs(usual * declared - 1) > thresholds.rate


def _covers(
    episode: Episode, key: str, times: NDArray[np.float64], thresholds: Thresholds
) -> Iterator[Finding]:
    """Whether a stream begins before the first step and goes on until the last one."""
    steps = episode.monotonic_time
    if not np.isfinite(steps).all() or not np.isfinite(times).all():
        return
    if not len(times):
        text = "The stream has no sample at all. Check that the sensor was connected; leave the stream out."
        yield Finding(kind=Kind.GAP, severity=Severity.ERROR, message=text, episode=episode.id, feature=key)
        return
    slack = thresholds.gap * max(period(times), period(steps))
    late, early = times.min() - steps[0], steps[-1] - times.max()
    if late > slack:
        text = (
            f"The first sample comes {late:.4g} s after the first step. Start the sensor before the episode."
        )
        yield Finding.at(
            Kind.GAP, Severity.WARNING, text, episode=episode.id, feature=key, times=times, rows=[0]
        )
    if early > slack:
        text = (
            f"The last sample comes {early:.4g} s before the last step: the sensor stopped. Cut the end off."
        )
        rows = [len(times) - 1]
        yield Finding.at(
            Kind.GAP, Severity.WARNING, text, episode=episode.id, feature=key, times=times, rows=rows
        )


def _order(
    episode: Episode, key: str, times: NDArray[np.float64], steps: NDArray[np.float64]
) -> Iterator[Finding]:
    back = np.flatnonzero(steps < 0) + 1
    if len(back):
        text = (
            f"Time runs backward {len(back)} times, by up to {-steps.min():.4g} s. Stamp with a monotonic "
            "clock; sort only what is known to have come in another order."
        )
        yield Finding.at(
            Kind.TIME_ORDER, Severity.ERROR, text, episode=episode.id, feature=key, times=times, rows=back
        )
    equal = np.flatnonzero(steps == 0) + 1
    if len(equal):
        text = (
            f"{len(equal)} samples have the time of the one before. Drop repeated samples, or stamp each "
            "when it is measured and not when it is read."
        )
        yield Finding.at(
            Kind.DUPLICATE_TIME,
            Severity.ERROR,
            text,
            episode=episode.id,
            feature=key,
            times=times,
            rows=equal,
        )


def _gaps(
    episode: Episode, key: str, times: NDArray[np.float64], periods: NDArray[np.float64], t: Thresholds
) -> Iterator[Finding]:
    rows = np.flatnonzero(periods > t.missed)
    rows = np.array([row for row in rows if not _paused(episode, key, times, int(row))], np.int64)
    if not len(rows):
        return
    missed = int(np.round(periods[rows] - 1).sum())
    longest = int(rows[np.argmax(periods[rows])])
    seconds = times[longest + 1] - times[longest]
    grave = periods[rows].max() > t.gap or missed > t.missed_share * len(times)
    text = (
        f"{len(rows)} gaps, about {missed} samples are missing; the longest is {seconds:.4g} s "
        f"({periods[longest]:.1f} periods) after row {longest}. No window may cross it: split the episode "
        "there, or record a pause as an event."
    )
    severity = Severity.WARNING if grave else Severity.NOTE
    yield Finding.at(
        Kind.GAP,
        severity,
        text,
        episode=episode.id,
        feature=key,
        times=times,
        rows=np.append(rows, rows[-1] + 1),
    )


def _paused(episode: Episode, key: str, times: NDArray[np.float64], row: int) -> bool:
    """Whether the interval after a row is a pause that was recorded as one."""
    if key == STEPS and Source.PAUSED in (episode.source[row], episode.source[row + 1]):
        return True
    begin, end = times[row], times[row + 1]
    return any(start < end and stop > begin for start, stop in pauses(episode))


def pauses(episode: Episode) -> list[tuple[float, float]]:
    """Begin and end of every recorded pause, monotonic s; one that does not end lasts for ever."""
    found: list[tuple[float, float]] = []
    begin: float | None = None
    for event in sorted(episode.events, key=lambda event: event.time):
        if event.kind == "pause" and begin is None:
            begin = event.time
        elif event.kind == "resume" and begin is not None:
            found.append((begin, event.time))
            begin = None
    return found if begin is None else [*found, (begin, float("inf"))]
