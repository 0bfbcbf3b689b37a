"""Zarr version 2 arrays of others, chunk by chunk, where a missing chunk is an error and not zeros.

Only plain numbers in C or F order; a chunk's size is known from the metadata, so that no compressed chunk can
unfold to more.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError
from data.formats.limits import Budget
from data.formats.unpack import CODECS, UnpackError, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from data.formats.group_files import Files

_META_BYTES = 1 << 20
_HEADER_SLACK = 1 << 16


@dataclass(frozen=True)
class _Meta:
    """What ``.zarray`` says."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    separator: str
    compressor: str
    fill: float | None

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks) * self.dtype.itemsize


class Zarr2Array:
    """One array.

    Args:
        files: Where its group lies.
        name: Its path in the group, such as ``"data/action"``.
        fill_missing: Take the array's fill value for a missing chunk, as Zarr does, instead of raising.

    Raises:
        DatasetError: Its metadata are missing or describe no array of plain numbers that can be read.
    """

    def __init__(self, files: Files, name: str, *, fill_missing: bool = False) -> None:
        self._files = files
        self._fill_missing = fill_missing
        self._name = name
        self._meta = _meta(files, name)
        self._last: tuple[tuple[int, ...], NDArray[Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return self._meta.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers, in native byte order."""
        return self._meta.dtype.newbyteorder("=")

    def first_missing(self, names: set[str]) -> str | None:
        """A chunk whose file is not among the names of the group's files; None where all are there."""
        grid = [range(-(-size // chunk)) for size, chunk in zip(self.shape, self._meta.chunks, strict=True)]
        files = map(self._chunk_file, _product(grid))
        return next((file for file in files if file not in names), None)

    def rows(self, start: int, stop: int, budget: Budget) -> NDArray[Any]:
        """Rows start to stop of the first axis.

        Args:
            start: First row.
            stop: Row after the last, at most the length.
            budget: Pays for the decoded rows.

        Raises:
            DatasetError: A chunk is missing, broken or of another size, or the budget is passed.
        """
        shape = (stop - start, *self.shape[1:])
        budget.spend_array(shape, self._meta.dtype, f"array {self._name}")
        Budget(budget.limit, budget.where).spend(self._meta.chunk_bytes, f"one chunk of {self._name}")
        found = np.empty(shape, self.dtype)
        for place in self._places(start, stop):
            origin = [index * size for index, size in zip(place, self._meta.chunks, strict=True)]
            first = max(start, origin[0])
            last = min(stop, origin[0] + self._meta.chunks[0])
            target = [slice(first - start, last - start)]
            source = [slice(first - origin[0], last - origin[0])]
            for begin, size, whole in zip(origin[1:], self._meta.chunks[1:], self.shape[1:], strict=True):
                target.append(slice(begin, min(begin + size, whole)))
                source.append(slice(0, min(size, whole - begin)))
            found[tuple(target)] = self._chunk(place)[tuple(source)]
        return found

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        rows = self._meta.chunks[0]
        grid = [range(start // rows, -(-stop // rows))]
        grid += [range(-(-n // c)) for n, c in zip(self.shape[1:], self._meta.chunks[1:], strict=True)]
        return _product(grid)

    def _chunk_file(self, place: tuple[int, ...]) -> str:
        return f"{self._name}/{self._meta.separator.join(map(str, place))}"

    def _chunk(self, place: tuple[int, ...]) -> NDArray[Any]:
        """A whole chunk; the last one is kept, since episodes end within chunks."""
        if self._last is not None and self._last[0] == place:
            return self._last[1]
        name, meta = self._chunk_file(place), self._meta
        content = self._files.read(name, 2 * meta.chunk_bytes + _HEADER_SLACK)
        if content is None and self._fill_missing and meta.fill is not None:
            return np.full(meta.chunks, meta.fill, meta.dtype)
        if content is None:
            raise DatasetError(
                f"{self._files.place}: chunk {name} is missing; Zarr would read it as {meta.fill!r}. Copy it "
                "from the source of the data."
            )
        try:
            raw = unpack(content, meta.compressor, meta.chunk_bytes)
        except UnpackError as error:
            raise DatasetError(f"{self._files.place}: chunk {name} cannot be decoded: {error}.") from error
        chunk = np.frombuffer(raw, meta.dtype).reshape(meta.chunks, order="F" if meta.order == "F" else "C")
        self._last = (place, chunk)
        return chunk


def arrays_below(files: Files, folder: str) -> list[str]:
    """Paths of the arrays in a folder of the group, at any depth, without the folder itself."""
    ending = "/.zarray"
    return [
        name.removeprefix(f"{folder}/").removesuffix(ending)
        for name in files.names()
        if name.startswith(f"{folder}/") and name.endswith(ending)
    ]


def _product(grid: list[range]) -> Iterator[tuple[int, ...]]:
    """Like `itertools.product`, which would first build each axis and fill the memory on an absurd shape."""
    if not grid:
        yield ()
        return
    for index in grid[0]:
        for rest in _product(grid[1:]):
            yield (index, *rest)


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list of sizes")
    return tuple(int(size) for size in value)


def _meta(files: Files, name: str) -> _Meta:
    content = files.read(f"{name}/.zarray", _META_BYTES)
    if content is None:
        raise DatasetError(f"{files.place} has no array {name}.")
    try:
        raw = json.loads(content)
        compressor = "" if raw["compressor"] is None else str(raw["compressor"]["id"])
        shape, chunks = _sizes(raw["shape"]), _sizes(raw["chunks"])
        dtype = np.dtype(str(raw["dtype"])) if isinstance(raw["dtype"], str) else None
        separator = str(raw.get("dimension_separator", "."))
        order, version, filters = str(raw["order"]), raw["zarr_format"], raw.get("filters")
        fill = None if raw.get("fill_value") is None else float(raw["fill_value"])
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{files.place}: {name}/.zarray is no array metadata: {error!r}.") from error
    if dtype is None or dtype.kind not in "biuf":
        raise DatasetError(
            f"{files.place}: {name} holds {raw['dtype']!r}; only plain numbers are read, no objects."
        )
    if compressor not in CODECS or filters:
        raise DatasetError(
            f"{files.place}: {name} is packed with {compressor or filters!r}; read are {sorted(CODECS)} "
            "without filters. Save it anew with one of these."
        )
    fits = len(shape) == len(chunks) >= 1 and min(shape) >= 0 and min(chunks) >= 1
    if not fits or version != 2 or separator not in {".", "/"} or order not in {"C", "F"}:
        raise DatasetError(
            f"{files.place}: {name} has shape {shape}, chunks {chunks}, order {order!r}, separator "
            f"{separator!r} and Zarr version {version}; that is no Zarr 2 array."
        )
    return _Meta(shape, chunks, dtype, order, separator, compressor, fill)
