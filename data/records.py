"""What happened: one control step, one planned chunk, one whole episode.

An episode is columnar: T steps, T + 1 observations, one array per quantity. Its arrays are read-only copies,
since a record of what happened does not change; take ``array.copy()`` to work on one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from data.steps import Chunk, Outcome, SegmentKind, Source, Step, frozen

if TYPE_CHECKING:
    from enum import StrEnum

    from numpy.typing import ArrayLike, NDArray

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
]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ACTION_COLUMNS = ("action_base", "action_policy", "action_intended", "action")
"""Columns of shape (T, A), float64."""
STEP_COLUMNS: Mapping[str, str] = {
    "chunk_id": "int64",
    "chunk_index": "int64",
    "source": "str",
    "segment_id": "int64",
    "segment_kind": "str",
    "reward": "float64",
    "terminated": "bool",
    "truncated": "bool",
    "wall_time": "float64",
    "monotonic_time": "float64",
    "gain": "float64",
}
"""Columns of shape (T,) and their type."""

CATEGORIES: Mapping[str, type[StrEnum]] = {"source": Source, "segment_kind": SegmentKind}
"""Columns of text and what they may hold."""


def check_id(id_: str) -> str:
    """Return an episode id that can safely name a folder.

    Raises:
        ValueError: The id is empty, longer than 128 characters or could leave its folder.
    """
    if not _ID.fullmatch(id_):
        raise ValueError(
            f"Episode id {id_!r} cannot name a folder; use 1 to 128 letters, digits, '.', '_' or '-', "
            "the first a letter or digit."
        )
    return id_


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
        metadata: Further facts of JSON types, such as the drawn estimate error.
        extra: Diagnostics per step, each (T, ...), such as the contact force.
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

    def __post_init__(self) -> None:
        """Copy, freeze and check every array."""
        check_id(self.id)
        put = object.__setattr__
        put(self, "outcome", Outcome(self.outcome))
        put(self, "chunks", tuple(self.chunks))
        put(self, "metadata", dict(self.metadata))
        for name in ACTION_COLUMNS:
            put(self, name, frozen(getattr(self, name), "float64"))
        for name, dtype in STEP_COLUMNS.items():
            put(self, name, frozen(getattr(self, name), dtype))
        put(self, "observations", {key: frozen(value) for key, value in self.observations.items()})
        put(self, "extra", {key: frozen(value) for key, value in self.extra.items()})
        self._check_actions()
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
        if self.action.ndim != 2 or not len(self):
            raise ValueError(
                f"Episode {self.id}: action has shape {self.action.shape}; (T, A) with T >= 1 is needed."
            )
        for name in ACTION_COLUMNS:
            if getattr(self, name).shape != self.action.shape:
                raise ValueError(
                    f"Episode {self.id}: {name} has shape {getattr(self, name).shape}, but action has "
                    f"{self.action.shape}; fill rows without one with NaN."
                )

    def _check_lengths(self) -> None:
        steps = len(self)
        lengths = [(name, getattr(self, name), steps) for name in STEP_COLUMNS]
        lengths += [(f"extra[{key!r}]", value, steps) for key, value in self.extra.items()]
        lengths += [(f"observations[{key!r}]", value, steps + 1) for key, value in self.observations.items()]
        for name, value, length in lengths:
            if value.ndim == 0 or value.shape[0] != length:
                raise ValueError(
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
                raise ValueError(f"Episode {self.id}: {name} holds {sorted(unknown)}; allowed: {[*kind]}.")

    def _check_chunks(self) -> None:
        known = [chunk.id for chunk in self.chunks]
        if len(set(known)) != len(known):
            raise ValueError(f"Episode {self.id}: chunk ids {known} are not unique.")
        lost = set(np.unique(self.chunk_id).tolist()) - {-1, *known}
        if known and lost:
            raise ValueError(
                f"Episode {self.id}: steps name chunks {sorted(lost)}, which are not among {known}."
            )


class EpisodeBuilder:
    """Grows an episode step by step; every array is copied when it is given.

    Args:
        id: Name of the episode, see `check_id`.
        task: The task in words.
        seed: Seed of the reset; None on a real robot.
        robot: Which robot or simulation.
        operator: Who demonstrates or intervenes.
        base_version: Hash or name of the base policy.
        refiner_version: Hash or name of the refiner.
        metadata: Further facts of JSON types; the attribute can be added to until `finish`.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the name of the field
        task: str,
        seed: int | None = None,
        robot: str = "",
        operator: str = "",
        base_version: str = "",
        refiner_version: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._facts: dict[str, Any] = {
            "id": check_id(id),
            "task": task,
            "seed": seed,
            "robot": robot,
            "operator": operator,
            "base_version": base_version,
            "refiner_version": refiner_version,
        }
        self.metadata: dict[str, Any] = dict(metadata or {})
        self._observations: dict[str, list[NDArray[Any]]] = {}
        self._extra: dict[str, list[NDArray[Any]]] = {}
        self._columns: dict[str, list[Any]] = {name: [] for name in (*ACTION_COLUMNS, *STEP_COLUMNS)}
        self._chunks: list[Chunk] = []

    def __len__(self) -> int:
        """Number of steps so far."""
        return len(self._columns["action"])

    def start(self, observation: Mapping[str, ArrayLike]) -> None:
        """Take the observation of the reset.

        Raises:
            RuntimeError: The episode was started already.
            ValueError: The observation is empty.
        """
        if self._observations:
            raise RuntimeError(f"Episode {self._facts['id']} was started already; build a new one.")
        if not observation:
            raise ValueError("The first observation is empty; an episode needs at least one key.")
        self._observations = {key: [np.array(value)] for key, value in observation.items()}

    def append(
        self,
        step: Step,
        next_observation: Mapping[str, ArrayLike],
        extra: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Add one step and what was observed after it.

        Args:
            step: What was done.
            next_observation: The same keys as at `start`, also on the last step.
            extra: Diagnostics of this step; the same keys at every step.

        Raises:
            RuntimeError: `start` was not called.
            ValueError: A key came or went, or an action has another length than the executed one.
        """
        if not self._observations:
            raise RuntimeError("append before start: give the observation of the reset first.")
        self._same_keys("observation", self._observations, next_observation)
        given = dict(extra or {})
        if len(self) == 0:
            self._extra = {key: [] for key in given}
        self._same_keys("extra", self._extra, given)
        action = np.array(step.action, np.float64)
        rows = {name: _action_row(getattr(step, name), action, name) for name in ACTION_COLUMNS}
        for name in STEP_COLUMNS:
            rows[name] = getattr(step, name)
        for name, value in rows.items():
            self._columns[name].append(value)
        for key, values in self._observations.items():
            values.append(np.array(next_observation[key]))
        for key, values in self._extra.items():
            values.append(np.array(given[key]))

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; steps refer to it by its id."""
        self._chunks.append(chunk)

    def finish(self, outcome: Outcome | str = Outcome.UNKNOWN) -> Episode:
        """Build the episode.

        Raises:
            ValueError: No step was taken, or the arrays of one key differ in shape.
        """
        if not len(self):
            raise ValueError(f"Episode {self._facts['id']} has no steps; nothing was recorded.")
        facts: dict[str, Any] = {
            **self._facts,
            **self._columns,
            "outcome": Outcome(outcome),
            "observations": {key: _stack(key, values) for key, values in self._observations.items()},
            "extra": {key: _stack(key, values) for key, values in self._extra.items()},
            "chunks": tuple(self._chunks),
            "metadata": self.metadata,
        }
        return Episode(**facts)

    def _same_keys(self, what: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        if known.keys() != given.keys():
            raise ValueError(
                f"Episode {self._facts['id']}, step {len(self)}: {what} has keys {sorted(given)}, before "
                f"{sorted(known)}. A missing sensor is an error, never zeros."
            )


def equal(a: Episode, b: Episode) -> bool:
    """Whether two episodes hold the same facts, bit for bit (NaN equals NaN)."""
    return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(Episode))


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401 - every kind of field
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, Chunk) and isinstance(b, Chunk):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(Chunk))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _action_row(value: ArrayLike | None, action: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    row = np.full_like(action, np.nan) if value is None else np.array(value, np.float64)
    if row.ndim != 1 or row.shape != action.shape:
        raise ValueError(
            f"Step {name} has shape {row.shape}; the executed action has {action.shape}, (A,) is needed."
        )
    return row


def _stack(key: str, values: list[NDArray[Any]]) -> NDArray[Any]:
    for step, value in enumerate(values):
        if value.shape != values[0].shape or value.dtype != values[0].dtype:
            raise ValueError(
                f"{key!r} is {value.dtype}{value.shape} at row {step}, "
                f"but {values[0].dtype}{values[0].shape} at the first."
            )
    return np.stack(values)
