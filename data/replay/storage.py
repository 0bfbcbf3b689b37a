"""Rings of rows, in memory or in files that are mapped into it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

_MARK = "mark"
"""Ring of what a folder's rows belong to."""


def take(ring: NDArray[Any], rows: NDArray[np.int64], into: NDArray[Any] | None = None) -> NDArray[Any]:
    """Copies of some rows, put into an array when one is given.

    Much faster than indexing: rows are known to exist, so that nothing is checked.
    """
    return ring.take(rows, 0, into, "clip")


def uniform(first: int, held: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers from `first` to `first + held - 1`, (count,), each as often as every other."""
    return first + (rng.random(count) * held).astype(np.int64)


def put(ring: NDArray[Any], start: int, values: NDArray[Any]) -> None:
    """Write rows into a ring from a row on, around its end where they reach it.

    Args:
        ring: (capacity, ...).
        start: First row, 0 <= start < capacity.
        values: (N, ...), N <= capacity.
    """
    fitting = min(len(values), len(ring) - start)
    ring[start : start + fitting] = values[:fitting]
    if fitting < len(values):
        ring[: len(values) - fitting] = values[fitting:]


class Rings:
    """Named arrays of `capacity` rows.

    Args:
        capacity: Rows of each.
        folder: Where their files lie; in memory when None. It is made, and belongs to these rings.
    """

    def __init__(self, capacity: int, folder: Path | str | None = None) -> None:
        self.capacity = capacity
        self.folder = None if folder is None else Path(folder)
        self.arrays: dict[str, NDArray[Any]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all rings, whether in memory or in files."""
        return sum(array.nbytes for array in self.arrays.values())

    def make(self, forms: Mapping[str, tuple[Sequence[int], DTypeLike]]) -> None:
        """Make a ring for each name, given the shape and type of a row.

        Raises:
            FileExistsError: The folder holds something already.
            OSError: The disk has no room for all the rows.
        """
        if self.folder is None:
            self.arrays = {
                name: np.zeros((self.capacity, *shape), dtype) for name, (shape, dtype) in forms.items()
            }
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise FileExistsError(
                f"{self.folder} is not empty; give a replay a folder of its own, or load the state that "
                "belongs to this one."
            )
        for number, (name, (shape, dtype)) in enumerate({**forms, _MARK: ((), np.int64)}.items()):
            mapped = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]  # NumPy has no types here
                self._file(number), mode="w+", dtype=np.dtype(dtype), shape=(self.capacity, *shape)
            )
            try:
                self._set_aside(number, name)
            except OSError:
                self.arrays = {}
                for made in range(number + 1):  # so that it can be tried again when there is room
                    self._file(made).unlink()
                raise
            self.arrays[name] = np.asarray(mapped)

    def reopen(self, forms: Mapping[str, tuple[Sequence[int], DTypeLike]]) -> None:
        """Map the files of an earlier time again.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file has another shape or type.
        """
        for number, (name, (shape, dtype)) in enumerate({**forms, _MARK: ((), np.int64)}.items()):
            path = self._file(number)
            if not path.exists():
                raise FileNotFoundError(f"{path} is missing, which held {name!r} of the replay.")
            mapped = np.lib.format.open_memmap(path, "r+")  # type: ignore[no-untyped-call]  # as above
            if (mapped.shape, mapped.dtype) != ((self.capacity, *shape), np.dtype(dtype)):
                raise ValueError(
                    f"{path} holds {mapped.shape} of {mapped.dtype}; {(self.capacity, *shape)} of "
                    f"{np.dtype(dtype)} was stored for {name!r}."
                )
            self.arrays[name] = np.asarray(mapped)

    @contextmanager
    def marking(self, start: int, count: int, mark: int) -> Iterator[None]:
        """Mark rows while they are written: as nobody's before, and with a mark after.

        Rows are counted from the beginning. In memory nothing is marked. A crash leaves rows of nobody.
        """
        marks = self.arrays.get(_MARK)
        if marks is not None:
            put(marks, start % self.capacity, np.full(count, -1))
        yield
        if marks is not None:
            put(marks, start % self.capacity, np.full(count, mark))

    def marked(self, start: int, count: int, mark: int) -> bool:
        """Whether rows of a folder still carry a mark."""
        rows = np.arange(start, start + count) % self.capacity
        return bool((self.arrays[_MARK][rows] == mark).all())

    def flush(self) -> None:
        """Write what is only in memory to the files, if there are any."""
        if self.folder is not None:
            for array in self.arrays.values():
                base = array.base
                assert isinstance(base, np.memmap)
                base.flush()

    def _set_aside(self, number: int, name: str) -> None:
        """Take the disk space now: on a full disk, writing to a mapped file later would kill the process."""
        path = self._file(number)
        size = path.stat().st_size
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{path} cannot take the {size:,} bytes that {self.capacity:,} rows of {name!r} need "
                f"({error.strerror}); free space, choose another folder or a smaller capacity.",
            ) from error

    def _file(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"ring-{number:03d}.npy"
