"""Checks of sensors that repeat: frozen while the robot moves, slower than the steps, a copied last row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from data.validate.finding import Finding, Kind, Severity
from data.validate.signals import Signal, stretches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from data.records import Episode
    from data.validate.thresholds import Thresholds

_AT_REST = ("tactile", "wrench", "force", "effort")
"""Sensors that read exactly zero when nothing touches them, in simulation and after taring."""


@dataclass(frozen=True, eq=False)
class Motion:
    """Whether the robot moved between two moments, told by everything but the sensor that is in question.

    Attributes:
        signals: Vectors of the episode, the executed action among them.
        moved: Share of its range that a dimension must travel.
    """

    signals: Sequence[Signal]
    moved: float

    @cached_property
    def _ranges(self) -> dict[str, NDArray[np.float64]]:
        ranges = {}
        for signal in self.signals:
            span = np.ptp(signal.flat, axis=0)
            noise = 1e-4 * np.abs(signal.flat).max(0)
            ranges[signal.key] = np.where(span > noise, span, np.inf)
        return ranges

    def during(self, part: Signal, first: int, last: int) -> bool:
        """Whether any dimension of another signal travelled far while rows of this one came."""
        for signal in self.signals:
            if signal.key == part.key:
                continue
            rows = signal.flat[_same_moments(part, signal, first, last)]
            if len(rows) > 2 and (np.ptp(rows, axis=0) / self._ranges[signal.key] >= self.moved).any():
                return True
        return False


def _same_moments(part: Signal, other: Signal, first: int, last: int) -> slice:
    """Rows of another signal while rows of this one came; by number where both are of steps."""
    if part.stream or other.stream:
        begin, end = np.searchsorted(other.times, [part.times[first], part.times[last]])
        return slice(int(begin), int(end) + 1)
    return slice(first, last + 1)


def motion(parts: Sequence[Signal], thresholds: Thresholds) -> Motion:
    """What tells whether the robot moved: its state and its commands, no pictures, forces or touch."""
    words = (*_AT_REST, "image", "environment")
    usable = [
        part
        for part in parts
        if part.vector
        and part.rows.dtype.kind == "f"
        and not any(word in part.key for word in words)
        and np.isfinite(part.flat).all()
        and (not part.stream or bool((np.diff(part.times) >= 0).all()))
    ]
    return Motion(usable, thresholds.moved)


def check_still(episode: Episode, parts: Sequence[Signal], thresholds: Thresholds) -> Iterator[Finding]:
    """Frozen sensors, repeated samples and a copied last observation."""
    moving = motion(parts, thresholds)
    for part in parts:
        if len(part.rows) <= thresholds.frozen_samples:
            continue
        command = part.key == "action"  # a command may rest while the robot still moves
        found = [] if command else list(_frozen(episode, part, moving, thresholds))
        yield from found
        if not found and not command and part.vector and not part.stream:
            found = list(_frozen_dimensions(episode, part, thresholds))
            yield from found
        if not found:
            yield from _repeats(episode, part, thresholds)
    yield from _last_observation(episode, parts)


def _frozen(episode: Episode, part: Signal, moving: Motion, t: Thresholds) -> Iterator[Finding]:
    if not part.changed.any():  # it may be a goal or a calibration; `across` compares with other episodes
        return
    if part.vector and _few_values(part.flat, t.distinct):
        return
    for first, last in _long(~part.changed, part.times, t):
        zero = not part.rows[first].any() and any(word in part.key for word in _AT_REST)
        if zero or not moving.during(part, first, last + 1):
            continue
        seconds = part.times[last + 1] - part.times[first]
        lasting = "" if np.isnan(seconds) else f" for {seconds:.3g} s"
        what = "The picture" if part.picture else "The sensor"
        text = (
            f"{what} repeats the same bits{lasting} ({last - first + 2} samples) while the "
            "robot moves. Check driver and cable, and cut this stretch: what it shows is not true."
        )
        yield _at(Kind.FROZEN, Severity.WARNING, text, episode=episode, part=part, rows=(first, last + 1))


def _frozen_dimensions(episode: Episode, part: Signal, t: Thresholds) -> Iterator[Finding]:
    """One dimension of a vector that stands while the others move, though it never does elsewhere."""
    rows = part.flat
    if rows.shape[1] < 2 or not np.isfinite(rows).all():
        return
    changed = np.diff(rows, axis=0) != 0
    span = np.ptp(rows, axis=0)
    span = np.where(span > 1e-4 * np.abs(rows).max(0), span, np.inf)
    for index in range(rows.shape[1]):
        long = _long(~changed[:, index], part.times, t)
        elsewhere = np.ones(len(changed), bool)
        for first, last in long:
            elsewhere[first : last + 1] = False
        if elsewhere.sum() < t.frozen_samples or changed[elsewhere, index].mean() < t.lively:
            continue
        if "gripper" in part.dimension(index):  # it rests on what it holds
            continue
        for first, last in long:
            if rows[first, index] == 0:
                continue
            travel = np.ptp(rows[first : last + 2], axis=0) / span
            if np.delete(travel, index).max() < t.moved:
                continue
            text = (
                f"Stands at {rows[first, index]:.6g} for {last - first + 2} samples while other dimensions "
                "move, though it changes with every sample elsewhere. Check it, and cut this stretch."
            )
            name = part.dimension(index)
            yield _at(
                Kind.FROZEN,
                Severity.WARNING,
                text,
                episode=episode,
                part=part,
                rows=(first, last + 1),
                dimension=name,
            )


def _repeats(episode: Episode, part: Signal, t: Thresholds) -> Iterator[Finding]:
    share = float((~part.changed).mean())
    if not t.repeats <= share < 1 or (part.vector and _few_values(part.flat, t.distinct)):
        return
    if any(word in part.key for word in _AT_REST):
        return
    runs = stretches(~part.changed)
    longest = max(runs, key=lambda run: run[1] - run[0])
    text = (
        f"{100 * share:.0f} % of the samples equal the one before to the bit, at most "
        f"{longest[1] - longest[0] + 2} in a row: the sensor is slower than the steps, or the robot rested."
    )
    yield _at(
        Kind.REPEATS, Severity.NOTE, text, episode=episode, part=part, rows=(longest[0], longest[1] + 1)
    )


def _last_observation(episode: Episode, parts: Sequence[Signal]) -> Iterator[Finding]:
    """The observation after the last step is a copy of the one before, or is missing (NaN)."""
    seen = [part for part in parts if part.key in episode.observations and not part.stream]
    if len(episode) < 3 or not seen:
        return
    empty = [part for part in seen if part.rows.dtype.kind == "f" and np.isnan(part.rows[-1]).all()]
    lively = [part for part in seen if part.changed[:-1].mean() > 0.5]
    copied = (
        bool(lively) and not any(part.changed[-1] for part in seen) and all(p.changed[-2] for p in lively)
    )
    if not (empty or copied):
        return
    known = copied and episode.metadata.get("last_observation") == "repeated"  # the reader said so
    text = (
        "The observation after the last step is "
        + ("missing." if empty else "a copy of the one before it.")
        + " The last transition says that the action did nothing: leave the last step out, or record one "
        "more observation."
    )
    severity = Severity.NOTE if known else Severity.WARNING
    part, last = (empty or lively)[0], len(episode)
    yield _at(Kind.LAST_OBSERVATION, severity, text, episode=episode, part=part, rows=(last, last))


def _long(same: NDArray[np.bool_], times: NDArray[np.float64], t: Thresholds) -> list[tuple[int, int]]:
    """Stretches of repeats that last long enough; indices of intervals."""
    return [
        (first, last)
        for first, last in stretches(same)
        if last - first + 1 >= t.frozen_samples
        and not times[last + 1] - times[first] < t.frozen_s  # NaN: not known
    ]


def _few_values(rows: NDArray[np.float64], most: int) -> bool:
    return len(np.unique(rows, axis=0)) <= most


def _at(
    kind: Kind,
    severity: Severity,
    text: str,
    *,
    episode: Episode,
    part: Signal,
    rows: tuple[int, int],
    dimension: str = "",
) -> Finding:
    return Finding.at(
        kind,
        severity,
        text,
        episode=episode.id,
        feature=part.key,
        dimension=dimension,
        times=part.times,
        rows=rows,
    )
