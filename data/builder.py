"""Grows an episode step by step, in memory or in pieces that are taken out while it runs."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from data.piece import Piece
from data.steps import ACTION_COLUMNS, STEP_COLUMNS, Chunk, Outcome, SegmentKind, Source, Step, check_id
from data.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from data.events import Event
    from data.features import Feature
    from data.records import Episode


_TYPES: Mapping[str, Callable[[Any], Any]] = {"int64": operator.index, "float64": float, "bool": bool}
_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    **{name: _TYPES[dtype] for name, dtype in STEP_COLUMNS.items() if dtype in _TYPES},
    "source": Source,
    "segment_kind": SegmentKind,
}


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
        metadata: Further facts; the attribute can be added to until `finish`.
        stream_features: What one sample of a stream is, by key, where it is known.
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
        stream_features: Mapping[str, Feature] | None = None,
    ) -> None:
        self.id = check_id(id)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self._facts: dict[str, Any] = {
            "id": id,
            "task": task,
            "seed": seed,
            "robot": robot,
            "operator": operator,
            "base_version": base_version,
            "refiner_version": refiner_version,
        }
        self._observations: dict[str, list[NDArray[Any]]] = {}
        self._extra: dict[str, list[NDArray[Any]]] = {}
        self._columns: dict[str, list[Any]] = {name: [] for name in (*ACTION_COLUMNS, *STEP_COLUMNS)}
        self._chunks: list[Chunk] = []
        self._streams: dict[str, tuple[list[float], list[float], list[NDArray[Any]]]] = {}
        self._events: list[Event] = []
        self.stream_features: dict[str, Feature] = dict(stream_features or {})
        self._forms: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._plans: set[int] = set()
        self._named: set[int] = set()
        self._steps = 0
        self._taken = 0

    def __len__(self) -> int:
        """Number of steps so far."""
        return self._steps

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the episode besides its steps and outcome."""
        return {**self._facts, "metadata": self.metadata}

    def start(self, observation: Mapping[str, ArrayLike]) -> None:
        """Take the observation of the reset.

        Raises:
            RuntimeError: The episode was started already.
            ValueError: The observation is empty.
        """
        if self._observations:
            raise RuntimeError(f"Episode {self.id} was started already; build a new one.")
        if not observation:
            raise ValueError("The first observation is empty; an episode needs at least one key.")
        self._observations = {key: [] for key in observation}
        self._add("observation", self._observations, observation)

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
            ValueError: A key came or went, an array changed its shape or type, an action has another length
                than the executed one, or a fact is not of its type. Nothing of the step is kept then.
        """
        if not self._observations:
            raise RuntimeError("append before start: give the observation of the reset first.")
        given = dict(extra or {})
        if self._steps == 0:
            self._extra = {key: [] for key in given}
        action = np.array(step.action, np.float64)
        scalars = {name: self._scalar(name, getattr(step, name)) for name in STEP_COLUMNS}
        actions = {name: self._action_row(getattr(step, name), action, name) for name in ACTION_COLUMNS}
        self._check("action", {"executed": []}, {"executed": action})
        self._check("extra", self._extra, given)
        self._add("observation", self._observations, next_observation)
        self._add("extra", self._extra, given)
        for name, row in actions.items():
            self._columns[name].append(row)
        for name, value in scalars.items():
            self._columns[name].append(value)
        self._named.add(scalars["chunk_id"])
        self._steps += 1

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; steps refer to it by its id, and may have come before it.

        Raises:
            ValueError: There is a plan of this id, or those before had other shapes or types; it is not kept.
        """
        if chunk.id in self._plans:
            raise ValueError(f"Episode {self.id}, step {self._steps}: there is a plan {chunk.id} already.")
        rows = {"actions": chunk.actions, "noise": chunk.noise, "candidates": chunk.candidates}
        for name, value in rows.items():
            if value is not None:
                self._check_form(f"plan {name}, one row of", np.empty(value.shape[1:], value.dtype))
        self._plans.add(chunk.id)
        self._chunks.append(chunk)

    def check_plans(self) -> None:
        """Refuse to end while steps name plans that are missing among others.

        Raises:
            ValueError: They do.
        """
        missing = self._named - self._plans - {-1}
        if self._plans and missing:
            raise ValueError(
                f"Episode {self.id}: steps name plans {sorted(missing)}, which were not added: add them, or "
                "name none (-1)."
            )

    def stream(self, key: str, time: float, wall_time: float, value: ArrayLike) -> None:
        """Add one sample of a sensor that has a rate of its own.

        Args:
            key: As for observations, such as ``"observation.wrench"``.
            time: When it was taken, monotonic s; kept as measured.
            wall_time: The same moment, s since 1970-01-01 UTC.
            value: The sample; the same shape and type each time.

        Raises:
            ValueError: Its shape or type differs from the samples before; it is not kept then.
        """
        array = np.array(value)
        self._check_form(f"stream {key!r}", array)
        times, walls, values = self._streams.setdefault(key, ([], [], []))
        times.append(float(time))
        walls.append(float(wall_time))
        values.append(array)

    def event(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def take(self) -> Piece:
        """Take out the steps since the last call, for whoever keeps them from now on.

        Streams are without their features: a recorder puts places of pictures where pictures were.
        """
        piece = Piece(
            steps=self._steps - self._taken,
            observations=_stacked(self._observations),
            columns={n: np.array(rows, STEP_COLUMNS.get(n, "float64")) for n, rows in self._columns.items()},
            extra=_stacked(self._extra),
            chunks=tuple(self._chunks),
            streams={
                key: Stream(np.array(t), np.array(w), np.stack(values))
                for key, (t, w, values) in self._streams.items()
            },
            events=tuple(self._events),
        )
        for rows in (*self._observations.values(), *self._extra.values(), *self._columns.values()):
            rows.clear()
        self._chunks, self._events, self._streams = [], [], {}
        self._taken = self._steps
        return piece

    def finish(self, outcome: Outcome | str = Outcome.UNKNOWN) -> Episode:
        """Build the episode.

        Raises:
            ValueError: No step was taken.
            RuntimeError: Steps were taken out before.
        """
        from data.records import Episode  # its interface includes this builder

        if self._taken:
            raise RuntimeError(f"{self._taken} steps of episode {self.id} were taken out before.")
        if not self._steps:
            raise ValueError(f"Episode {self.id} has no steps; nothing was recorded.")
        piece = self.take()
        parts: dict[str, Any] = {**self.facts, **piece.columns, "outcome": Outcome(outcome)}
        parts |= {name: getattr(piece, name) for name in ("observations", "extra", "chunks", "events")}
        streams = {
            key: replace(stream, feature=self.stream_features.get(key))
            for key, stream in piece.streams.items()
        }
        return Episode(**parts, streams=streams)

    def check_stream(self, key: str, sample: NDArray[Any]) -> None:
        """Refuse a sample of a stream that is not what `stream_features` says.

        Raises:
            ValueError: Its shape or type is another.
        """
        feature = self.stream_features.get(key)
        if feature is not None and (sample.dtype.name, sample.shape) != (feature.dtype, feature.shape):
            raise ValueError(
                f"Episode {self.id}: stream {key!r} holds {sample.dtype}{sample.shape}, but its feature says "
                f"{feature.dtype}{feature.shape}; give such samples, or declare what comes."
            )

    def _add(self, what: str, rows: dict[str, list[NDArray[Any]]], given: Mapping[str, ArrayLike]) -> None:
        self._check(what, rows, given)
        for key, values in rows.items():
            values.append(np.array(given[key]))

    def _check(self, what: str, known: Mapping[str, Any], given: Mapping[str, ArrayLike]) -> None:
        if known.keys() != given.keys():
            raise ValueError(
                f"Episode {self.id}, step {self._steps}: {what} has keys {sorted(given)}, "
                f"before {sorted(known)}. A missing sensor is an error, never zeros."
            )
        for key, value in given.items():
            self._check_form(f"{what} {key!r}", np.asarray(value))

    def _check_form(self, what: str, array: NDArray[Any]) -> None:
        form = self._forms.setdefault(what, (array.dtype, array.shape))
        if form != (array.dtype, array.shape):
            raise ValueError(
                f"Episode {self.id}, step {self._steps}: {what} is {array.dtype}{array.shape}, "
                f"before {form[0]}{form[1]}."
            )

    def _scalar(self, name: str, value: Any) -> Any:  # noqa: ANN401 - a number or a word
        try:
            return _SCALARS[name](value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Episode {self.id}, step {self._steps}: {name} is {value!r}; {error}."
            ) from error

    def _action_row(
        self, value: ArrayLike | None, action: NDArray[np.float64], name: str
    ) -> NDArray[np.float64]:
        row = np.full_like(action, np.nan) if value is None else np.array(value, np.float64)
        if row.ndim != 1 or row.shape != action.shape:
            raise ValueError(
                f"Episode {self.id}, step {self._steps}: {name} has shape {row.shape}, the executed action "
                f"{action.shape}; (A,) is needed."
            )
        return row


def _stacked(rows: Mapping[str, list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {key: np.stack(values) for key, values in rows.items() if values}
