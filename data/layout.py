"""Where each part of an episode lies in its Zarr group, and back.

``observations/<key>`` (T + 1, ...) and ``extra/<key>`` (T, ...) hold one key each. Columns of steps share
arrays: ``steps/actions`` (T, 4, A), ``steps/values`` (T, 4) and ``steps/labels`` (T, 7); texts from a fixed
set stand as their number in the set. ``chunks/table`` (M, 7) holds a row per plan, whose actions, noise and
candidates follow each other in arrays of their own. ``streams/<key>`` is a group of ``times`` (N,),
``wall_times`` (N,) and ``values`` (N, ...). The names of all these columns are an attribute of the group, as
are the events and the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from data.events import Event
from data.features import from_json, to_json
from data.records import ACTION_COLUMNS, CATEGORIES, STEP_COLUMNS, Chunk, Episode
from data.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

FACTS = ("id", "task", "seed", "outcome", "robot", "operator", "base_version", "refiner_version", "metadata")
"""Fields of an `Episode` that are attributes."""
STEP_TABLES: Mapping[str, tuple[str, ...]] = {
    "steps/actions": ACTION_COLUMNS,
    "steps/values": ("reward", "wall_time", "monotonic_time", "gain"),
    "steps/labels": (
        "chunk_id",
        "chunk_index",
        "source",
        "segment_id",
        "segment_kind",
        "terminated",
        "truncated",
    ),
}
"""Columns along the second axis of the arrays of steps."""
CHUNK_TABLE = ("id", "first_step", "delay", "index", "length", "noise_length", "candidates_length")
"""Columns of the table of plans; -1 stands for what a plan does not have."""
_KEY = re.compile(r"(?!zarr\.json$)[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
STREAM_PARTS = ("times", "wall_times", "values")
"""Arrays of a stream."""


def check_key(key: str) -> str:
    """Return the key of an observation or diagnostic that can safely name a folder.

    Raises:
        ValueError: It could leave its folder, is hidden, or is the name of a file that Zarr needs there.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"Key {key!r} cannot name a stored array; use letters, digits, '.', '_' and '-', not zarr.json."
        )
    return key


def step_arrays(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Columns of steps by path; those of one type share an array, since many small files are slow."""
    coded = dict(columns)
    for name, kind in CATEGORIES.items():
        codes = {str(member): code for code, member in enumerate(kind)}
        coded[name] = np.array([codes[str(value)] for value in columns[name]], np.int64)
    types = {"steps/actions": "float64", "steps/values": "float64", "steps/labels": "int64"}
    return {
        path: np.stack([coded[name] for name in names], axis=1).astype(types[path])
        for path, names in STEP_TABLES.items()
    }


def episode_arrays(episode: Episode) -> dict[str, NDArray[Any]]:
    """Every array of an episode by path."""
    arrays = {f"observations/{check_key(key)}": value for key, value in episode.observations.items()}
    arrays |= step_arrays({name: getattr(episode, name) for name in (*ACTION_COLUMNS, *STEP_COLUMNS)})
    arrays |= {f"extra/{check_key(key)}": value for key, value in episode.extra.items()}
    return arrays | chunk_arrays(episode.chunks) | stream_arrays(episode.streams)


def stream_arrays(streams: Mapping[str, Stream]) -> dict[str, NDArray[Any]]:
    """Times and samples of streams by path."""
    return {
        f"streams/{check_key(key)}/{part}": getattr(stream, part)
        for key, stream in streams.items()
        for part in STREAM_PARTS
    }


def episode_facts(episode: Episode) -> dict[str, Any]:
    """What of an episode is an attribute, as JSON."""
    features = {key: s.feature for key, s in episode.streams.items() if s.feature is not None}
    return {
        **{name: getattr(episode, name) for name in FACTS},
        "events": [event.to_json() for event in episode.events],
        "stream_features": to_json(features),
    }


def chunk_arrays(chunks: Iterable[Chunk]) -> dict[str, NDArray[Any]]:
    """Plans as a table by path; plans of several tables are those of the tables appended to each other.

    No array at all for no plans.
    """
    plans = list(chunks)
    if not plans:
        return {}
    table = [
        (
            plan.id,
            plan.first_step,
            plan.delay,
            -1 if plan.index is None else plan.index,
            len(plan.actions),
            -1 if plan.noise is None else len(plan.noise),
            -1 if plan.candidates is None else len(plan.candidates),
        )
        for plan in plans
    ]
    arrays: dict[str, NDArray[Any]] = {"chunks/table": np.array(table, np.int64)}
    for name in ("actions", "noise", "candidates"):
        rows = [value for plan in plans if (value := getattr(plan, name)) is not None]
        if rows:
            arrays[f"chunks/{name}"] = np.concatenate(rows)
    return arrays


def episode_from(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Episode:
    """Put an episode together.

    Args:
        facts: The attributes, at least `FACTS`.
        arrays: By path, as `episode_arrays` gave them.

    Raises:
        KeyError: A part is missing.
        ValueError: The parts do not fit together.
    """
    columns: dict[str, Any] = {}
    for path, names in STEP_TABLES.items():
        columns |= {name: arrays[path][:, i] for i, name in enumerate(names)}
    for name, kind in CATEGORIES.items():
        texts = np.array([str(member) for member in kind])
        columns[name] = texts[_within(columns[name], len(texts), name)]
    for name in ("terminated", "truncated"):
        columns[name] = _within(columns[name], 2, name).astype(bool)
    parts: dict[str, Any] = {name: facts[name] for name in FACTS}
    parts |= columns
    parts["observations"] = _below("observations/", arrays)
    parts["extra"] = _below("extra/", arrays)
    parts["chunks"] = _plans(_below("chunks/", arrays))
    parts["streams"] = _streams(_below("streams/", arrays), facts.get("stream_features", {}))
    parts["events"] = tuple(Event.from_json(event) for event in facts.get("events", ()))
    return Episode(**parts)


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {path.removeprefix(prefix): array for path, array in arrays.items() if path.startswith(prefix)}


def _streams(arrays: Mapping[str, NDArray[Any]], features: Mapping[str, Any]) -> dict[str, Stream]:
    known = from_json(features)
    keys = dict.fromkeys(path.rpartition("/")[0] for path in arrays)
    found = {}
    for key in keys:
        times, walls, values = (arrays[f"{key}/{part}"] for part in STREAM_PARTS)
        found[key] = Stream(times, walls, values, known.get(key))
    return found


def _within(codes: NDArray[Any], count: int, name: str) -> NDArray[Any]:
    if codes.size and not 0 <= codes.min() <= codes.max() < count:
        raise ValueError(f"{name} holds numbers outside 0..{count - 1}")
    return codes


def _plans(parts: Mapping[str, NDArray[Any]]) -> tuple[Chunk, ...]:
    if not parts:
        return ()
    table = dict(zip(CHUNK_TABLE, parts["table"].T, strict=True))
    actions = _Rows(parts["actions"], table["length"])
    noise = _Rows(parts.get("noise"), table["noise_length"])
    candidates = _Rows(parts.get("candidates"), table["candidates_length"])
    return tuple(
        Chunk(
            id=int(table["id"][i]),
            first_step=int(table["first_step"][i]),
            actions=actions.take(i),
            noise=noise.take(i),
            delay=int(table["delay"][i]),
            candidates=candidates.take(i),
            index=None if table["index"][i] < 0 else int(table["index"][i]),
        )
        for i in range(len(parts["table"]))
    )


class _Rows:
    """Cuts concatenated rows at their lengths."""

    def __init__(self, rows: NDArray[Any] | None, lengths: NDArray[Any]) -> None:
        self._rows = rows
        self._lengths = lengths
        self._ends = np.cumsum(np.maximum(lengths, 0))

    def take(self, i: int) -> Any:  # noqa: ANN401 - an array, or None where the plan has none
        if self._rows is None or self._lengths[i] < 0:
            return None
        return self._rows[self._ends[i] - self._lengths[i] : self._ends[i]]


def column_names() -> dict[str, list[str]]:
    """Names of the columns of the arrays that hold several, for readers that know only Zarr."""
    tables = {**STEP_TABLES, "chunks/table": CHUNK_TABLE}
    categories = {
        f"steps/labels:{name}": [str(member) for member in kind] for name, kind in CATEGORIES.items()
    }
    return {path: list(names) for path, names in tables.items()} | categories
