"""Reads replay buffers in the style of Diffusion Policy: Zarr 2 arrays of all steps, and where episodes end.

Source of the layout: Chi et al. 2023, "Diffusion Policy: Visuomotor Policy Learning via Action Diffusion".

``data/<name>`` (N, ...) hold the steps of all episodes one after the other, ``meta/episode_ends`` (E,) the
row after the last of each. A folder or a zip file. Chunks are read when their episode is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from data.config import from_dict
from data.errors import DatasetError
from data.features import Feature, from_array
from data.formats.group_files import open_files
from data.formats.limits import Budget
from data.formats.recorded import ReadArrays, Rows, recorded_episode, safe_key
from data.formats.registry import Format, Source
from data.formats.zarr2_files import Zarr2Array, arrays_below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from data.formats.group_files import Files
    from data.records import Episode

_ENDS = "meta/episode_ends"
_EPOCH_S = 1e9
"""Time stamps beyond this, September 2001, are times of day."""


@dataclass(frozen=True)
class ReadDiffusionPolicy(ReadArrays):
    """How a replay buffer is read.

    Attributes:
        missing_chunks: What a chunk without a file means: ``"error"``, or ``"fill"`` the array's fill value.
            Some writers leave chunks out in which every number is that value.
        pictures: ``"uint8"`` makes 8-bit pictures of those kept as whole floats from 0 to 255; ``"stored"``
            takes them as they are.
    """

    missing_chunks: Literal["error", "fill"] = "error"
    pictures: Literal["uint8", "stored"] = "uint8"


class DiffusionPolicy(Format):
    """A ``.zarr`` folder or ``.zarr.zip`` file with ``data`` and ``meta/episode_ends``."""

    name: ClassVar[str] = "diffusion-policy"
    summary: ClassVar[str] = "Diffusion Policy's Zarr 2 replay buffer, folder or zip (read only)"
    looked_for: ClassVar[str] = "a folder or zip file with meta/episode_ends/.zarray"
    reading: ClassVar[type] = ReadDiffusionPolicy

    def matches(self, path: Path) -> bool:
        """Whether it has the array of episode ends, or is a zip file that `read` refuses with a reason."""
        if path.is_dir():
            return (path / _ENDS / ".zarray").is_file()
        if not path.is_file() or path.suffix != ".zip":
            return False
        try:
            return open_files(path).read(f"{_ENDS}/.zarray", 1 << 20) is not None
        except DatasetError:
            return True

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a folder or zip file; see `ReadDiffusionPolicy` for the options, and `Format.read`."""
        chosen = from_dict(ReadDiffusionPolicy, options)
        buffer = _Buffer(open_files(path), chosen)
        budget = Budget(chosen.max_decoded_bytes, str(path))
        rows = buffer.observations(0, 1, budget)
        notes = chosen.notes(times="timestamp" in buffer.arrays, last_observation=False, rewards=False)
        if chosen.missing_chunks == "fill":
            notes += tuple(
                f"{name} lacks chunks; its fill value stands for them." for name in buffer.incomplete
            )
        features = {key: _feature(key, values[0]) for key, values in rows.items()}
        return Source(features, chosen.described_action(), len(buffer.ends), buffer.episodes(), notes)


class _Buffer:
    """The arrays of one buffer, checked against each other."""

    def __init__(self, files: Files, options: ReadDiffusionPolicy) -> None:
        self._files = files
        self._options = options
        names = arrays_below(files, "data")
        if "action" not in names:
            raise DatasetError(f"{files.place} lacks data/action; it has {names}.")
        fill = options.missing_chunks == "fill"
        self.arrays = {name: Zarr2Array(files, f"data/{name}", fill_missing=fill) for name in names}
        self._keys = {name: _key(name, array) for name, array in self.arrays.items()}
        if len(set(self._keys.values())) < len(self._keys):
            raise DatasetError(f"{files.place}: arrays {sorted(self._keys)} would share a key: {self._keys}.")
        self.incomplete = self._incomplete()
        self.ends = self._episode_ends()
        rows = {name: array.shape for name, array in self.arrays.items()}
        total = int(self.ends[-1])
        if len(rows["action"]) != 2 or any(shape[0] != total for shape in rows.values()):
            raise DatasetError(
                f"{files.place}: arrays have shapes {rows} and the last episode ends at row {total}; every "
                "array needs as many rows, and data/action (N, A)."
            )

    def episodes(self) -> Iterator[Episode]:
        width = len(str(len(self.ends) - 1))
        starts = np.concatenate([[0], self.ends[:-1]])
        for number, (start, stop) in enumerate(zip(starts, self.ends, strict=True)):
            id_ = f"episode-{number:0{width}d}"
            budget = Budget(self._options.max_decoded_bytes, f"{self._files.place}, {id_}")
            yield recorded_episode(id_, self._rows(int(start), int(stop), budget), self._options)

    def observations(self, start: int, stop: int, budget: Budget) -> dict[str, NDArray[Any]]:
        names = [name for name in self.arrays if name not in {"action", "timestamp"}]
        if not names:
            raise DatasetError(f"{self._files.place} has actions only, no observations.")
        found = {}
        for name in names:
            values = self.arrays[name].rows(start, stop, budget)
            if _is_picture(values.shape) and self._options.pictures == "uint8":
                values = _pictures(values, name, self._files.place)
            found[self._keys[name]] = values
        return found

    def _rows(self, start: int, stop: int, budget: Budget) -> Rows:
        wall = monotonic = None
        if "timestamp" in self.arrays:
            stamps = (
                self.arrays["timestamp"].rows(start, stop, budget).astype(np.float64).reshape(stop - start)
            )
            wall = stamps if stamps[0] > _EPOCH_S else None
            monotonic = stamps - (stamps[0] if wall is not None else 0.0)
        return Rows(
            action=self.arrays["action"].rows(start, stop, budget),
            observations=self.observations(start, stop, budget),
            wall_time=wall,
            monotonic_time=monotonic,
            extra={},
            metadata={"rows": [start, stop]},
        )

    def _incomplete(self) -> tuple[str, ...]:
        names = set(self._files.names())
        found = {name: array.first_missing(names) for name, array in self.arrays.items()}
        lost = {name: chunk for name, chunk in found.items() if chunk is not None}
        if lost and self._options.missing_chunks == "error":
            raise DatasetError(
                f"{self._files.place} lacks chunks, among them {', '.join(lost.values())}; Zarr would read "
                "them as their fill value. Copy them from the source of the data; if they were left out on "
                "purpose, being empty, say missing_chunks='fill'."
            )
        return tuple(f"data/{name}" for name in lost)

    def _episode_ends(self) -> NDArray[np.int64]:
        array = Zarr2Array(self._files, _ENDS)
        if len(array.shape) != 1 or array.dtype.kind not in "iu" or not array.shape[0]:
            raise DatasetError(f"{self._files.place}: {_ENDS} is {array.dtype}{array.shape}; (E,) integers.")
        budget = Budget(self._options.max_decoded_bytes, self._files.place)
        ends = array.rows(0, array.shape[0], budget).astype(np.int64)
        if (np.diff(ends, prepend=0) < 1).any():
            raise DatasetError(f"{self._files.place}: {_ENDS} begins {ends[:8].tolist()}; it must grow.")
        return ends


def _key(name: str, array: Zarr2Array) -> str:
    if name in {"action", "timestamp"}:
        return name
    if _is_picture(array.shape):
        return f"observation.images.{safe_key(name.replace('/', '.'))}"
    return f"observation.{safe_key(name.replace('/', '.'))}"


def _feature(key: str, row: NDArray[Any]) -> Feature:
    if key.startswith("observation.images."):
        return Feature(tuple(row.shape), str(row.dtype), names=("height", "width", "channel"), layout="hwc")
    if row.ndim == 3 and row.dtype == np.uint8 and row.shape[0] in {1, 3}:
        return Feature(tuple(row.shape), "uint8", names=("channel", "height", "width"), layout="chw")
    return from_array(row)


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[-1] in {1, 3} and min(shape[1:3]) > 1


def _pictures(values: NDArray[Any], name: str, place: str) -> NDArray[Any]:
    """Pictures as 8-bit values; buffers often keep them as floats of 0 to 255."""
    if values.dtype == np.uint8:
        return values
    with np.errstate(invalid="ignore"):  # NaN becomes some number, which then differs
        whole = values.astype(np.uint8)
    if not np.array_equal(whole, values):
        raise DatasetError(
            f"{place}: data/{name} has the shape of pictures but holds {values.dtype} from {values.min()} to "
            f"{values.max()}; whole numbers from 0 to 255 are needed. Say pictures='stored' to take it so."
        )
    return whole
