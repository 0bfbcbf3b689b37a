"""An episode seen as signals: rows with their own times, whatever they were stored as."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.features import Feature, from_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from data.features import Features
    from data.records import Episode

STATE = "observation.state"
SIMULATION = "simulation"
"""The robot of episodes that the control loop records in a simulation."""
_JITTER = 0.02
_NO_STATE = ("image", "tactile", "wrench", "force", "effort", "environment")


@dataclass(frozen=True, eq=False)
class Signal:
    """Rows of one quantity over time.

    Attributes:
        key: Such as ``observation.state`` or ``action``.
        rows: (N, ...), as recorded.
        times: (N,), monotonic, s.
        feature: What one row is.
        stream: Whether it has times of its own, beside those of the control steps.
    """

    key: str
    rows: NDArray[Any]
    times: NDArray[np.float64]
    feature: Feature
    stream: bool = False

    @cached_property
    def flat(self) -> NDArray[np.float64]:
        """(N, D) as float64; not for pictures, whose rows are large."""
        return np.asarray(self.rows.reshape(len(self.rows), math.prod(self.rows.shape[1:])), np.float64)

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """(N - 1,), whether a row differs from the one before in any bit; NaN equals NaN."""
        found = np.empty(max(0, len(self.rows) - 1), bool)
        before = self.rows[0] if len(found) else np.zeros(0)
        for index in range(len(found)):  # one row at a time: pictures may be unpacked only here
            row = self.rows[index + 1]
            found[index] = not _same(row, before)
            before = row
        return found

    @property
    def picture(self) -> bool:
        """Whether rows are camera pictures."""
        return self.rows.dtype == np.uint8 and len(self.rows.shape) >= 3

    @property
    def vector(self) -> bool:
        """Whether a row is a number or a vector, so that each dimension means something of its own."""
        return len(self.rows.shape) <= 2 and self.rows.dtype.kind in "fiub"

    def dimension(self, index: int) -> str:
        """Name of a dimension."""
        return self.feature.dimension(index)


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def signals(
    episode: Episode, features: Features, action_spec: Mapping[str, Any] | None = None
) -> Iterator[Signal]:
    """Every observation, the executed action and every stream of an episode.

    Args:
        episode: The episode.
        features: Names the dimensions of observations where it can.
        action_spec: Names those of the action.
    """
    times = observation_times(episode)
    for key, rows in episode.observations.items():
        yield Signal(key, rows, times, _feature(rows, features.get(key)))
    yield Signal("action", episode.action, episode.monotonic_time, action_feature(episode, action_spec))
    for key, stream in episode.streams.items():
        feature = stream.feature or features.get(key)
        yield Signal(
            stream_name(key), stream.values, stream.times, _feature(stream.values, feature), stream=True
        )


def stream_name(key: str) -> str:
    """What findings call a stream, since an observation may have the same key."""
    return f"{key} (stream)"


def observation_times(episode: Episode) -> NDArray[np.float64]:
    """(T + 1,): times of the steps, and one usual period after the last of them."""
    times = episode.monotonic_time
    return np.append(times, times[-1] + period(times))


def period(times: NDArray[np.float64]) -> float:
    """Usual time between two samples, s; 0 for a single one."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def free_running(episode: Episode) -> bool:
    """Whether a simulation stepped as fast as it could, so that its times say nothing of the robot.

    The intervals of such a recording vary with the load of the computer; a simulated clock's are all equal.
    """
    steps = np.diff(episode.monotonic_time)
    usual = float(np.median(steps)) if len(steps) else 0.0
    return episode.robot == SIMULATION and usual > 0 and float(steps.std()) > _JITTER * usual


def control_period(episode: Episode, action_spec: Mapping[str, Any] | None) -> float:
    """Time of one control step, s: measured where that says something, else declared, else NaN."""
    measured = period(episode.monotonic_time)
    if measured > 0 and not free_running(episode):
        return measured
    declared = float((action_spec or {}).get("rate_hz") or np.nan)
    return measured if np.isnan(declared) and measured > 0 else 1 / declared


def action_feature(episode: Episode, action_spec: Mapping[str, Any] | None) -> Feature:
    """What the action's dimensions are called: as declared, or by number."""
    size = episode.action.shape[1]
    names = action_names(action_spec)
    if len(names) != size:
        names = tuple(str(index) for index in range(size))
    return Feature((size,), "float64", names=names)


def action_names(action_spec: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of an action's dimensions; those of several groups carry the group's name."""
    groups = (action_spec or {}).get("groups", ())
    several = len(groups) > 1
    return tuple(
        f"{group['name']}.{name}" if several else str(name)
        for group in groups
        for name in group.get("names") or range(int(group["size"]))
    )


def per_dimension(action_spec: Mapping[str, Any] | None, field: str) -> list[Any]:
    """One entry per action dimension of a field of its groups (``mode``, ``kind``, ``low`` ...)."""
    entries: list[Any] = []
    for group in (action_spec or {}).get("groups", ()):
        value = group.get(field)
        many = isinstance(value, list | tuple) and len(value) == group["size"]
        entries += list(value) if many else [value] * int(group["size"])
    return entries


def state_of(episode: Episode, features: Features) -> Signal | None:
    """The signal that follows the action: ``observation.state``, else the first vector that is no force."""
    times = observation_times(episode)
    vectors = {
        key: rows
        for key, rows in episode.observations.items()
        if rows.ndim == 2 and rows.dtype.kind == "f" and not any(word in key for word in _NO_STATE)
    }
    key = STATE if STATE in vectors else next(iter(vectors), None)
    return (
        None if key is None else Signal(key, vectors[key], times, _feature(vectors[key], features.get(key)))
    )


def _feature(rows: NDArray[Any], declared: Feature | None) -> Feature:
    if declared is not None and declared.shape == rows.shape[1:]:
        return declared
    return from_array(rows[0]) if len(rows) else Feature(tuple(rows.shape[1:]), str(rows.dtype))


def stretches(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of every stretch of True in (N,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(start), int(stop) - 1) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
