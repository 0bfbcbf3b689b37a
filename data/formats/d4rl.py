"""Reads flat HDF5 files in the style of D4RL: all steps of all episodes in one array each.

Source of the layout: Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning".

Where an episode ends is written in up to three ways. ``terminals`` marks true ends and ``timeouts`` cuts.
Where ``next_observations[t]`` is not ``observations[t + 1]`` the recording jumped to another episode, whether
or not a flag says so; without a terminal such an end is a cut. No transition crosses any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from data.config import from_dict
from data.errors import DatasetError
from data.features import from_array
from data.formats import hdf5_file as hdf5
from data.formats.compare import same_rows, truths
from data.formats.limits import Budget
from data.formats.recorded import ReadArrays, Rows, by_key, recorded_episode
from data.formats.registry import Format, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from data.records import Episode

_BLOCK_ROWS = 65_536
_NEEDED = ("observations", "actions")
_OPTIONAL = ("rewards", "terminals", "timeouts", "next_observations")


@dataclass(frozen=True)
class ReadD4rl(ReadArrays):
    """How a flat file is read.

    Attributes:
        key: Under which the observations appear.
    """

    key: str = "observation.state"


class D4rl(Format):
    """A file with ``observations`` and ``actions`` at its root."""

    name: ClassVar[str] = "d4rl"
    summary: ClassVar[str] = "D4RL-style flat HDF5, cut at terminals, time-outs and jumps (read only)"
    looked_for: ClassVar[str] = "an HDF5 file with the datasets observations and actions at its root"
    reading: ClassVar[type] = ReadD4rl

    def matches(self, path: Path) -> bool:
        """Whether the file has the two datasets at its root."""
        return hdf5.has_at_root(path, datasets=_NEEDED)

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a file; see `ReadD4rl` for the options, and `Format.read`."""
        chosen = from_dict(ReadD4rl, options)
        with hdf5.open_hdf5(path) as file:
            flat = _flat(file)
            spans = _spans(flat, chosen.max_decoded_bytes)
            one = hdf5.numbers(
                flat.known["observations"], Budget(chosen.max_decoded_bytes, str(path)), slice(0, 1)
            )
        complete, rewarded = "next_observations" in flat.known, "rewards" in flat.known
        notes = chosen.notes(times=False, last_observation=complete, rewards=rewarded)
        if flat.left_out:
            notes += (f"Left out, having no row per step: {', '.join(flat.left_out)}.",)
        unmarked = sum(not marked for _, _, _, marked in spans)
        if unmarked:
            notes += (f"{unmarked} of {len(spans)} ends have no flag; they are cuts (truncated), not ends.",)
        return Source(
            {chosen.key: from_array(one[0])},
            chosen.described_action(),
            len(spans),
            _episodes(path, spans, chosen),
            notes,
        )


type _Span = tuple[int, int, bool, bool]
"""First row, row after the last, whether the task ended there, whether a flag marks the end."""


@dataclass(frozen=True, eq=False)
class _Flat:
    """The datasets of a file.

    Attributes:
        place: The file, for messages.
        known: Those of the format, by name, one row per step.
        extra: Diagnostics with one row per step, by key.
        left_out: Names of the rest.
    """

    place: str
    known: dict[str, Any]
    extra: dict[str, Any]
    left_out: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.known["observations"])

    def column(self, name: str, rows: slice, budget: Budget) -> NDArray[Any] | None:
        if name not in self.known:
            return None
        values = hdf5.numbers(self.known[name], budget, rows)
        if values.size != len(values):
            raise DatasetError(f"{self.place}: {name} has shape {self.known[name].shape}; (N,) is needed.")
        return values.reshape(-1)


def _flat(file: Any) -> _Flat:  # noqa: ANN401 - h5py
    found = {name: hdf5.child(file, name) for name in hdf5.children(file)}
    if hdf5.is_group(found.get("infos")):
        infos = found.pop("infos")
        found |= {f"infos.{name}": hdf5.child(infos, name) for name in hdf5.children(infos)}
    known = {name: found[name] for name in (*_NEEDED, *_OPTIONAL) if hdf5.is_dataset(found.get(name))}
    missing = [name for name in _NEEDED if name not in known]
    if missing:
        raise DatasetError(f"{file.filename} lacks {missing}; it has {sorted(found)}.")
    for dataset in known.values():
        hdf5.check_dataset(dataset)
    _check_shapes(file.filename, {name: tuple(dataset.shape) for name, dataset in known.items()})
    rows = len(known["observations"])
    others = by_key({n: node for n, node in found.items() if n not in known}, file.filename)
    extra = {key: node for key, node in others.items() if hdf5.is_per_step(node, rows)}
    return _Flat(str(file.filename), known, extra, tuple(sorted(others.keys() - extra.keys())))


def _check_shapes(place: str, shapes: dict[str, tuple[int, ...]]) -> None:
    observations, actions = shapes["observations"], shapes["actions"]
    after = shapes.get("next_observations", observations)
    if len(observations) < 2 or not observations[0] or len(actions) != 2 or after != observations:
        raise DatasetError(
            f"{place}: observations {observations}, next_observations {after}, actions {actions}; (N, ...) "
            "twice alike and (N, A) with N >= 1 are needed."
        )
    wrong = {name: shape for name, shape in shapes.items() if shape[:1] != observations[:1]}
    if wrong:
        raise DatasetError(
            f"{place}: observations have {observations[0]} rows, but {wrong}; all need as many."
        )


def _spans(flat: _Flat, limit: int) -> list[_Span]:
    """Where each episode lies; reads the observations block by block."""
    everything = slice(0, len(flat))
    budget = Budget(limit, flat.place)
    flags = {}
    for name in ("terminals", "timeouts"):
        column = flat.column(name, everything, budget)
        given = np.zeros(len(flat), bool) if column is None else column
        flags[name] = truths(given, f"{flat.place}: {name}")
    marked = flags["terminals"] | flags["timeouts"]
    last = np.arange(len(flat)) == len(flat) - 1
    ends = np.flatnonzero(marked | _jumps(flat, limit) | last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return [
        (int(first), int(end) + 1, bool(flags["terminals"][end]), bool(marked[end]))
        for first, end in zip(starts, ends, strict=True)
    ]


def _jumps(flat: _Flat, limit: int) -> NDArray[np.bool_]:
    jumps = np.zeros(len(flat), bool)
    if "next_observations" not in flat.known:
        return jumps
    for start in range(0, len(flat) - 1, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(flat) - 1)
        budget = Budget(limit, flat.place)
        after = hdf5.numbers(flat.known["next_observations"], budget, slice(start, stop))
        then = hdf5.numbers(flat.known["observations"], budget, slice(start + 1, stop + 1))
        jumps[start:stop] = ~same_rows(after, then)
    return jumps


def _episodes(path: Path, spans: list[_Span], options: ReadD4rl) -> Iterator[Episode]:
    width = len(str(len(spans) - 1))
    with hdf5.open_hdf5(path) as file:
        flat = _flat(file)
        for number, span in enumerate(spans):
            id_ = f"episode-{number:0{width}d}"
            budget = Budget(options.max_decoded_bytes, f"{path}, {id_}")
            yield recorded_episode(id_, _rows(flat, span, budget, options), options)


def _rows(flat: _Flat, span: _Span, budget: Budget, options: ReadD4rl) -> Rows:
    first, stop, terminated, marked = span
    rows = slice(first, stop)
    observations = hdf5.numbers(flat.known["observations"], budget, rows)
    if "next_observations" in flat.known:
        after = hdf5.numbers(flat.known["next_observations"], budget, slice(stop - 1, stop))
        observations = np.concatenate([observations, after])
    return Rows(
        action=hdf5.numbers(flat.known["actions"], budget, rows),
        observations={options.key: observations},
        reward=flat.column("rewards", rows, budget),
        terminated=terminated,
        extra={key: hdf5.numbers(dataset, budget, rows) for key, dataset in flat.extra.items()},
        metadata={"rows": [first, stop], "end": "flag" if marked else "jump or end of the file"},
    )
