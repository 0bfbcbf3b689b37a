"""Where each part of an episode lies in its Zarr group, and back.

``observations/<key>`` (T + 1, ...), ``steps/<column>`` (T, ...), ``extra/<key>`` (T, ...) and ``chunks/...``;
texts from a fixed set (source, segment kind) as their number in the set. Everything else is an attribute of
the group.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from data.records import ACTION_COLUMNS, CATEGORIES, STEP_COLUMNS, Chunk, Episode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

FACTS = ("id", "task", "seed", "outcome", "robot", "operator", "base_version", "refiner_version", "metadata")
"""Fields of an `Episode` that are attributes."""
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")


def check_key(key: str) -> str:
    """Return the key of an observation or diagnostic that can safely name a folder.

    Raises:
        ValueError: It could leave its folder or is hidden.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"Key {key!r} cannot name a stored array; use letters, digits, '.', '_' and '-'.")
    return key


def step_arrays(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Columns of steps by path, texts as numbers."""
    arrays = {f"steps/{name}": columns[name] for name in (*ACTION_COLUMNS, *STEP_COLUMNS)}
    for name, kind in CATEGORIES.items():
        codes = {str(member): code for code, member in enumerate(kind)}
        arrays[f"steps/{name}"] = np.array([codes[str(value)] for value in columns[name]], np.int8)
    return arrays


def episode_arrays(episode: Episode) -> dict[str, NDArray[Any]]:
    """Every array of an episode by path."""
    arrays = {f"observations/{check_key(key)}": value for key, value in episode.observations.items()}
    arrays |= step_arrays({name: getattr(episode, name) for name in (*ACTION_COLUMNS, *STEP_COLUMNS)})
    arrays |= {f"extra/{check_key(key)}": value for key, value in episode.extra.items()}
    return arrays | chunk_arrays(episode.chunks)


def chunk_arrays(chunks: Iterable[Chunk]) -> dict[str, NDArray[Any]]:
    """Plans as a table by path; plans of several tables are those of the tables appended to each other.

    Lengths of -1 stand for what a plan does not have. No array at all for no plans.
    """
    plans = list(chunks)
    if not plans:
        return {}
    numbers = {
        "id": [plan.id for plan in plans],
        "first_step": [plan.first_step for plan in plans],
        "delay": [plan.delay for plan in plans],
        "index": [-1 if plan.index is None else plan.index for plan in plans],
        "length": [len(plan.actions) for plan in plans],
        "noise_length": [-1 if plan.noise is None else len(plan.noise) for plan in plans],
        "candidates_length": [-1 if plan.candidates is None else len(plan.candidates) for plan in plans],
    }
    arrays: dict[str, NDArray[Any]] = {f"chunks/{key}": np.array(v, np.int64) for key, v in numbers.items()}
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
    columns: dict[str, Any] = {name: arrays[f"steps/{name}"] for name in (*ACTION_COLUMNS, *STEP_COLUMNS)}
    for name, kind in CATEGORIES.items():
        texts = np.array([str(member) for member in kind])
        codes = columns[name]
        if codes.size and not 0 <= codes.min() <= codes.max() < len(texts):
            raise ValueError(f"{name} holds numbers outside 0..{len(texts) - 1}")
        columns[name] = texts[codes]
    parts: dict[str, Any] = {name: facts[name] for name in FACTS}
    parts |= columns
    parts["observations"] = _below("observations/", arrays)
    parts["extra"] = _below("extra/", arrays)
    parts["chunks"] = _plans(_below("chunks/", arrays))
    return Episode(**parts)


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {path.removeprefix(prefix): array for path, array in arrays.items() if path.startswith(prefix)}


def _plans(table: Mapping[str, NDArray[Any]]) -> tuple[Chunk, ...]:
    if not table:
        return ()
    actions = _Rows(table["actions"], table["length"])
    noise = _Rows(table.get("noise"), table["noise_length"])
    candidates = _Rows(table.get("candidates"), table["candidates_length"])
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
        for i in range(len(table["id"]))
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
