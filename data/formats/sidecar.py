"""A file beside a dataset of another format that holds what that format cannot: exact and checked.

It is one Parquet file with a row, and a row group, per episode: facts as JSON, arrays as bytes with
type and shape. Nothing in it is executed or unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import DatasetError
from data.manifest import sha256_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

_HEADER = b"robot-rl"
_VERSION = 1
_SCHEMA = pa.schema(
    [
        ("episode", pa.int64()),
        ("facts", pa.large_string()),
        ("paths", pa.list_(pa.string())),
        ("types", pa.list_(pa.string())),
        ("shapes", pa.list_(pa.list_(pa.int64()))),
        ("contents", pa.list_(pa.large_binary())),
        ("sha256", pa.string()),
    ]
)


def checksum(values: NDArray[Any]) -> str:
    """SHA-256 of numbers, as a sidecar keeps it of what lies beside it; whatever the machine's byte order."""
    return sha256_bytes(_little(values).tobytes())


class SidecarWriter:
    """Writes a sidecar, an episode at a time.

    Args:
        file: Where; must not exist. It is complete when the `with` block ends without an error.
        header: What holds for all episodes, JSON types only.
    """

    def __init__(self, file: Path, header: Mapping[str, Any]) -> None:
        content = json.dumps({**header, "version": _VERSION}, allow_nan=False).encode()
        self._writer = pq.ParquetWriter(file, _SCHEMA.with_metadata({_HEADER: content}), compression="zstd")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the file."""
        self._writer.close()

    def add(self, number: int, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add an episode.

        Args:
            number: Its number in the dataset.
            facts: JSON types only.
            arrays: By path, of plain numbers.

        Raises:
            ValueError: A fact is not finite.
            TypeError: A fact is not JSON.
        """
        text = json.dumps(facts, allow_nan=False)
        contents = [_little(value).tobytes() for value in arrays.values()]
        row = {
            "episode": number,
            "facts": text,
            "paths": list(arrays),
            "types": [value.dtype.name for value in arrays.values()],
            "shapes": [list(value.shape) for value in arrays.values()],
            "contents": contents,
        }
        row["sha256"] = _digest(row)
        self._writer.write_table(pa.Table.from_pylist([row], schema=_SCHEMA))


class Sidecar:
    """Reads a sidecar.

    Args:
        file: The file.

    Raises:
        DatasetError: It is broken, or was written by a newer version.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._opened = pq.ParquetFile(file)
            self.header: dict[str, Any] = json.loads((self._opened.schema_arrow.metadata or {})[_HEADER])
            version = int(self.header["version"])
            column = self._opened.read(columns=["episode"])["episode"].to_pylist()
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{file} cannot be read: {error!r}. {_REMEDY}") from error
        if version > _VERSION:
            raise DatasetError(
                f"{file} has version {version}; this release reads {_VERSION}. Update robot-rl."
            )
        self._groups = {number: group for group, number in enumerate(column)}
        if len(self._groups) != len(column) or self._opened.num_row_groups != len(column):
            raise DatasetError(f"{file} does not hold one row group for each episode. {_REMEDY}")

    @property
    def numbers(self) -> set[int]:
        """Numbers of the episodes in it."""
        return set(self._groups)

    def read(self, number: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Facts and arrays of an episode.

        Raises:
            DatasetError: It is missing or was changed.
        """
        if number not in self._groups:
            raise DatasetError(f"{self._file} has no episode {number}. {_REMEDY}")
        try:
            (row,) = self._opened.read_row_group(self._groups[number]).to_pylist()
            if row["sha256"] != _digest(row):
                raise DatasetError(f"Episode {number} in {self._file} was changed. {_REMEDY}")
            parts = zip(row["paths"], row["types"], row["shapes"], row["contents"], strict=True)
            return json.loads(row["facts"]), {path: _array(*part) for path, *part in parts}
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(
                f"Episode {number} in {self._file} cannot be read: {error}. {_REMEDY}"
            ) from error


_REMEDY = "Restore the file from a copy, or read the dataset without it (sidecar='ignore')."


def _array(kind: str, shape: list[int], content: bytes) -> NDArray[Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in "biuf":
        raise DatasetError(f"an array of type {kind!r}, where plain numbers are needed")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise DatasetError(f"an array of shape {shape} and type {kind} in {len(content)} bytes")
    return np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)


def _little(value: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(value, value.dtype.newbyteorder("<"))


def _digest(row: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in ("episode", "facts", "paths", "types", "shapes"):
        digest.update(json.dumps(row[name]).encode())
    for content in row["contents"]:
        digest.update(content)
    return digest.hexdigest()
