"""What happened: one control step, one planned chunk, one whole episode.

An episode is columnar: T steps, T + 1 observations, one array per quantity. Its arrays are read-only copies,
since a record of what happened does not change; take ``array.copy()`` to work on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.builder import EpisodeBuilder
from data.errors import LengthError
from data.events import Event
from data.plain import plain
from data.steps import (
    ACTION_COLUMNS,
    STEP_COLUMNS,
    Chunk,
    Outcome,
    SegmentKind,
    Source,
    Step,
    check_id,
    frozen,
)
from data.streams import Stream

if TYPE_CHECKING:
    from enum import StrEnum


__all__ = [
    "ACTION_COLUMNS",
    "CATEGORIES",
    "STEP_COLUMNS",
    "Chunk",
    "Episode",
    "EpisodeBuilder",
    "Outcome",
    "SegmentKind",
    "Source",
    "Step",
    "check_id",
    "equal",
    "plain",
]

CATEGORIES: Mapping[str, type[StrEnum]] = {"source": Source, "segment_kind": SegmentKind}
"""Columns of text and what they may hold."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Episode:
    """One whole recording, T steps long.

    Attributes:
        id: Name of the episode, unique in its store.
        task: The task in words.
        seed: Seed that the episode was reset with; None on a real robot.
        outcome: How it ended.
        robot: Which robot or simulation.
        operator: Who demonstrated or intervened; empty when nobody did.
        observations: By LeRobot key, each (T + 1, ...): row t is what step t saw,
            row T what came of the last step.
        action_base: (T, A), robot units, NaN rows where there was none; so the next two.
        action_policy: After correction.
        action_intended: What the operator or expert meant.
        action: What was executed.
        chunk_id: (T,), -1 without a chunk. This and the following are described at `Step`.
        chunk_index: (T,).
        source: (T,) of text, so that ``episode.source == Source.HUMAN`` is a mask.
        segment_id: (T,).
        segment_kind: (T,) of text.
        reward: (T,).
        terminated: (T,).
        truncated: (T,).
        wall_time: (T,), s.
        monotonic_time: (T,), s.
        gain: (T,).
        chunks: Plans in the order they were made.
        base_version: Hash or name of the base policy; empty without one.
        refiner_version: Hash or name of the refiner; empty without one.
        metadata: Further facts, such as the drawn estimate error; kept as JSON types, NumPy numbers become
            plain ones and numbers that are not finite become None.
        extra: Diagnostics per step, each (T, ...), such as the contact force.
        streams: Sensors with rates of their own by observation key, such as ``observation.wrench`` at
            500 Hz; `data.steps_view.at_steps` shows them as the steps saw them.
        events: Pauses, takeovers, marks and notes, in the order they were reported.
    """

    id: str
    task: str
    observations: Mapping[str, NDArray[Any]]
    action: NDArray[np.float64]
    action_base: NDArray[np.float64]
    action_policy: NDArray[np.float64]
    action_intended: NDArray[np.float64]
    chunk_id: NDArray[np.int64]
    chunk_index: NDArray[np.int64]
    source: NDArray[np.str_]
    segment_id: NDArray[np.int64]
    segment_kind: NDArray[np.str_]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    wall_time: NDArray[np.float64]
    monotonic_time: NDArray[np.float64]
    gain: NDArray[np.float64]
    seed: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    robot: str = ""
    operator: str = ""
    chunks: tuple[Chunk, ...] = ()
    base_version: str = ""
    refiner_version: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    streams: Mapping[str, Stream] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        """Copy, freeze and check every array."""
        check_id(self.id)
        put = object.__setattr__
        put(self, "outcome", Outcome(self.outcome))
        put(self, "chunks", tuple(self.chunks))
        put(self, "streams", dict(self.streams))
        put(self, "events", tuple(self.events))
        put(self, "metadata", plain(dict(self.metadata)))
        put(self, "seed", plain(self.seed))
        for name in ACTION_COLUMNS:
            put(self, name, frozen(getattr(self, name), "float64"))
        for name, dtype in STEP_COLUMNS.items():
            put(self, name, frozen(getattr(self, name), dtype))
        put(self, "observations", {key: frozen(value) for key, value in self.observations.items()})
        put(self, "extra", {key: frozen(value) for key, value in self.extra.items()})
        self._check_actions()
        self._check_sizes()
        self._check_lengths()
        self._check_categories()
        self._check_chunks()

    def __len__(self) -> int:
        """Number of steps T."""
        return int(self.action.shape[0])

    @property
    def success(self) -> bool:
        """Whether the outcome is success."""
        return self.outcome is Outcome.SUCCESS

    def _check_actions(self) -> None:
        if self.action.ndim != 2 or not self.action.size:
            raise ValueError(
                f"Episode {self.id}: action has shape {self.action.shape}; (T, A) with T and A at least 1 is "
                "needed."
            )
        for name in ACTION_COLUMNS:
            if getattr(self, name).shape != self.action.shape:
                raise ValueError(
                    f"Episode {self.id}: {name} has shape {getattr(self, name).shape}, but action has "
                    f"{self.action.shape}; fill rows without one with NaN."
                )

    def _check_sizes(self) -> None:
        for key, value in self.observations.items():
            if 0 in value.shape[1:]:
                raise ValueError(
                    f"Episode {self.id}: observations[{key!r}] has shape {value.shape}; a row without any "
                    "number is no observation. Leave it out."
                )

    def _check_lengths(self) -> None:
        steps = len(self)
        lengths = [(name, getattr(self, name), steps) for name in STEP_COLUMNS]
        lengths += [(f"extra[{key!r}]", value, steps) for key, value in self.extra.items()]
        lengths += [(f"observations[{key!r}]", value, steps + 1) for key, value in self.observations.items()]
        for name, value, length in lengths:
            if value.ndim == 0 or value.shape[0] != length:
                raise LengthError(
                    f"Episode {self.id}: {name} has shape {value.shape}; its first axis must be {length} "
                    f"({steps} steps{', and the observation after the last' if length > steps else ''})."
                )
            if value.dtype.hasobject:
                raise TypeError(
                    f"Episode {self.id}: {name} holds Python objects; only plain numbers are kept."
                )

    def _check_categories(self) -> None:
        for name, kind in CATEGORIES.items():
            unknown = set(np.unique(getattr(self, name))) - set(kind)
            if unknown:
                raise ValueError(
                    f"Episode {self.id}: {name} holds {sorted(map(str, unknown))}; "
                    f"allowed: {[str(member) for member in kind]}."
                )

    def _check_chunks(self) -> None:
        known = [chunk.id for chunk in self.chunks]
        if len(set(known)) != len(known):
            raise ValueError(f"Episode {self.id}: chunk ids {known} are not unique.")
        lost = set(np.unique(self.chunk_id).tolist()) - {-1, *known}
        if known and lost and not self.metadata.get("recovered"):  # whose last plan may not have arrived
            raise ValueError(
                f"Episode {self.id}: steps name chunks {sorted(lost)}, which are not among {known}."
            )


def equal(a: Episode, b: Episode) -> bool:
    """Whether two episodes hold the same facts, bit for bit (NaN equals NaN)."""
    return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(Episode))


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401 - every kind of field
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, Chunk | Stream) and type(a) is type(b):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
