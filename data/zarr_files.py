"""Zarr version 3 groups and arrays as files, in the few forms that episodes need.

The format is plain: a ``zarr.json`` per group and array, and a file per chunk. Writing these directly takes a
tenth of the time that the zarr package needs for an episode's many small arrays; any Zarr 3 reader opens the
result.

Arrays are chunked along their first axis only. Floats have NaN as fill value, so that a reader without our
checksums that meets a missing chunk sees NaN and not zeros.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.images import lossless_codecs
from data.packing import pack, unpack_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_TYPES = frozenset(
    [
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    ]
)
_CHUNK_BYTES = 8 << 20
_MAX_CHUNK_BYTES = 1 << 30
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


class ZarrFileError(ValueError):
    """A file is no Zarr 3 metadata or chunk of the forms that are written here."""


@dataclass(frozen=True)
class ArrayMeta:
    """What ``zarr.json`` says of an array.

    Attributes:
        shape: Size of each axis.
        chunk_rows: Rows of the first axis in one chunk.
        dtype: NumPy type name.
        compressed: Whether chunks are compressed (losslessly, Zstandard).
    """

    shape: tuple[int, ...]
    chunk_rows: int
    dtype: str
    compressed: bool = False

    def __post_init__(self) -> None:
        """Refuse types and sizes that are not plain arrays."""
        if self.dtype not in _TYPES:
            raise ZarrFileError(f"Arrays of type {self.dtype!r} are not stored; allowed: {sorted(_TYPES)}.")
        if not self.shape or min(self.shape) < 0 or self.chunk_rows < 1:
            raise ZarrFileError(
                f"Array shape {self.shape} with {self.chunk_rows} rows in a chunk is not possible."
            )

    @classmethod
    def of(cls, rows: NDArray[Any], length: int) -> ArrayMeta:
        """Meta of `length` rows like these, in chunks of about 8 MiB; masks and depths are compressed."""
        row_bytes = max(1, rows.dtype.itemsize * math.prod(rows.shape[1:]))
        if row_bytes > _MAX_CHUNK_BYTES:
            raise ZarrFileError(f"One row of {rows.dtype}{list(rows.shape[1:])} is larger than 1 GiB.")
        chunk_rows = max(1, min(length, _CHUNK_BYTES // row_bytes))
        dense = rows.dtype in (np.uint8, np.uint16) and rows.ndim >= 3
        return cls((length, *rows.shape[1:]), chunk_rows, rows.dtype.name, compressed=dense)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk, the last one included."""
        return (self.chunk_rows, *(max(1, size) for size in self.shape[1:]))

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return -(-self.shape[0] // self.chunk_rows) if math.prod(self.shape) else 0

    @property
    def chunk_names(self) -> list[str]:
        """File names of the chunks in order."""
        return [f"c.{i}" + ".0" * (len(self.shape) - 1) for i in range(self.chunk_count)]

    def to_bytes(self) -> bytes:
        """The content of ``zarr.json``."""
        codecs = [_BYTES, _ZSTD] if self.compressed else [_BYTES]
        return _array_bytes(self.shape, self.chunk_shape, self.dtype, codecs)

    @classmethod
    def from_bytes(cls, content: bytes) -> ArrayMeta:
        """Read ``zarr.json``.

        Raises:
            ZarrFileError: It is no array of the form written here.
        """
        try:
            meta = json.loads(content)
            shape = tuple(int(size) for size in meta["shape"])
            rows = int(meta["chunk_grid"]["configuration"]["chunk_shape"][0])
            codecs = [codec["name"] for codec in meta["codecs"]]
            found = cls(shape, rows, str(meta["data_type"]), compressed=codecs == ["bytes", "zstd"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ZarrFileError(f"no array metadata of the expected form: {error}") from error
        if json.loads(found.to_bytes()) != meta:
            raise ZarrFileError("array metadata of another form than episodes use")
        return found

    def encode(self, rows: NDArray[Any]) -> bytes:
        """Content of the chunk that holds these rows; a short last chunk is filled up as Zarr wants."""
        chunk = np.ascontiguousarray(rows, np.dtype(self.dtype).newbyteorder("<"))
        if len(rows) < self.chunk_rows:
            filler = np.zeros((self.chunk_rows - len(rows), *rows.shape[1:]), chunk.dtype)
            chunk = np.concatenate([chunk, filler])
        return pack(chunk) if self.compressed else chunk.tobytes()

    def decode(self, content: bytes) -> NDArray[Any]:
        """Rows of a chunk, filler included.

        Raises:
            ZarrFileError: The content has not the size of a chunk, or a chunk is larger than any is written.
        """
        dtype = np.dtype(self.dtype).newbyteorder("<")
        if math.prod(self.chunk_shape) * dtype.itemsize > _MAX_CHUNK_BYTES:
            raise ZarrFileError(f"a chunk of {self.dtype}{list(self.chunk_shape)} is larger than 1 GiB")
        chunk = np.empty(self.chunk_shape, dtype)
        try:
            if self.compressed:
                unpack_into(content, chunk)
            else:
                chunk = np.frombuffer(content, dtype).reshape(self.chunk_shape)
        except ValueError as error:
            raise ZarrFileError(f"no chunk of {self.dtype}{list(self.chunk_shape)}: {error}") from error
        return chunk


def pictures_bytes(shape: tuple[int, ...]) -> bytes:
    """Content of ``zarr.json`` of (N, height, width, channels) pictures, stored lossless in one shard."""
    inner = {
        "chunk_shape": [1, *shape[1:]],
        "codecs": lossless_codecs(),
        "index_codecs": [_BYTES, {"name": "crc32c"}],
        "index_location": "end",
    }
    return _array_bytes(shape, shape, "uint8", [{"name": "sharding_indexed", "configuration": inner}])


def group_bytes(attributes: Mapping[str, Any]) -> bytes:
    """Content of a group's ``zarr.json``.

    Raises:
        ValueError: An attribute holds NaN or infinity, which JSON cannot say.
        TypeError: An attribute is not JSON.
    """
    return _dump({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def group_attributes(content: bytes) -> dict[str, Any]:
    """Attributes of a group from its ``zarr.json``.

    Raises:
        ZarrFileError: The content is something else.
    """
    try:
        meta = json.loads(content)
        if meta["node_type"] != "group" or meta["zarr_format"] != 3:
            raise ZarrFileError(
                f"a Zarr {meta['zarr_format']} {meta['node_type']}, where a Zarr 3 group is needed"
            )
        return dict(meta["attributes"])
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ZarrFileError(f"no group metadata: {error}") from error


def _array_bytes(
    shape: tuple[int, ...], chunk_shape: tuple[int, ...], dtype: str, codecs: list[dict[str, Any]]
) -> bytes:
    fill: Any = {"b": False, "f": "NaN", "i": -1, "u": 0}[np.dtype(dtype).kind]
    return _dump(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": fill,
            "codecs": codecs,
            "attributes": {},
            "storage_transformers": [],
        }
    )


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
