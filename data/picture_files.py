"""Pictures of one camera in one file, appended while they come and read one by one.

Lossless, the file is one Zarr shard that holds the whole array: pictures follow each other, and the index
of their places at the end makes it one. JPEG files follow each other in a Zarr array of bytes, beside a
table of their places. Either way a picture has a checksum of its own, so that one can be read, and trusted,
without the others. A picture equal to the one before it is not stored again.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data.images import (
    PictureCodec,
    PictureError,
    check_size,
    crc32c,
    decode_jpeg,
    decode_lossless,
    encode_jpeg,
    encode_lossless,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike, NDArray

ROW = ("offset", "bytes", "crc32c")
"""Columns of a table of places."""


class PictureWriter:
    """Appends pictures to a file.

    Args:
        path: The file, not there yet.
        codec: Lossless or JPEG.
        shape: (height, width, channels) of every picture.

    Attributes:
        repeated: Pictures that were equal to the one before them.
    """

    def __init__(self, path: Path, codec: PictureCodec, shape: tuple[int, ...]) -> None:
        check_size(shape)
        self.codec = codec
        self.shape = shape
        self.repeated = 0
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._end = 0
        self._last: NDArray[np.uint8] | None = None
        self._row = (0, 0, 0)

    def add(self, picture: NDArray[Any]) -> tuple[int, int, int]:
        """Append a picture.

        Returns:
            Its place: offset, bytes, and CRC-32C of the packed pixels.

        Raises:
            ValueError: It has another shape or type than those before.
            OSError: It cannot be written.
        """
        if picture.shape != self.shape or picture.dtype != np.uint8:
            raise ValueError(f"is {picture.dtype}{picture.shape}, before uint8{self.shape}")
        if self._last is not None and np.array_equal(self._last, picture):
            self.repeated += 1
            return self._row
        if self.codec.kind == "jpeg":
            content = encode_jpeg(picture, self.codec.quality)
            checksum = crc32c(content)
        else:
            content = encode_lossless(picture)
            checksum = int.from_bytes(content[-4:], "little")
        _write_all(self._file.fileno(), content, self._end)
        self._row = (self._end, len(content), checksum)
        self._end += len(content)
        self._last = picture.copy()
        return self._row

    def place(self) -> tuple[dict[str, Any], int]:
        """File, codec and shape for a journal, and the size that the file has by now."""
        known = {"file": self._path.name, "codec": self.codec.to_json(), "shape": list(self.shape)}
        return known, self._end

    def sync(self) -> None:
        """Wait until everything is on the disk itself."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def shard_index(table: NDArray[np.int64]) -> bytes:
    """The end that makes a file of pictures a Zarr shard: offset and bytes of each, and a checksum."""
    index = np.ascontiguousarray(table[:, :2], "<u8").tobytes()
    return index + crc32c(index).to_bytes(4, "little")


def read_index(path: Path, count: int) -> NDArray[np.int64]:
    """Offset and bytes of each of `count` pictures, (N, 2), from the end of a shard.

    Raises:
        PictureError: The end is not the index of so many.
        OSError: The file cannot be read.
    """
    size = 16 * count + 4
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END) - size
        if start < 0:
            raise PictureError(f"it is too short for the places of {count} pictures")
        file.seek(start)
        content = file.read(size)
    if crc32c(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise PictureError("the table of places at its end was changed after it was written")
    return np.frombuffer(content[:-4], "<u8").reshape(count, 2).astype(np.int64)


def checksums_to_text(table: NDArray[np.int64]) -> str:
    """The checksums in a table of places as text; the inverse of `checksums_from`."""
    return base64.b64encode(np.ascontiguousarray(table[:, 2], "<u4").tobytes()).decode()


def checksums_from(text: str, count: int) -> NDArray[np.int64]:
    """CRC-32C of each of `count` pictures, (N,).

    Raises:
        PictureError: The text holds another number of them.
    """
    content = base64.b64decode(text, validate=True)
    if len(content) != 4 * count:
        raise PictureError(f"there are {len(content) // 4} checksums for {count} pictures")
    return np.frombuffer(content, "<u4").astype(np.int64)


class Pictures:
    """N pictures of one camera, unpacked when they are asked for: ``pictures[3]``, ``pictures[[1, 5]]``.

    Every picture that is read is checked against its checksum. Close it, or use it as a context manager.

    Args:
        path: The file.
        codec: Lossless or JPEG.
        shape: (height, width, channels).
        table: (N, 2 or 3) offset, bytes and CRC-32C of each; lossless pictures may lack the last, since each
            ends with its own.

    Raises:
        PictureError: The table names places outside the file.
        OSError: The file cannot be opened.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self, path: Path, codec: PictureCodec, shape: tuple[int, ...], table: NDArray[np.int64]
    ) -> None:
        check_size(shape)
        self.codec = codec
        self.shape = (len(table), *shape)
        self._table = table
        size = path.stat().st_size
        if len(table) and (table.min() < 0 or table[:, :2].max() > size or table[:, :2].sum(1).max() > size):
            raise PictureError("its table names places outside the file: it was cut off or changed")
        self._file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        """Number of pictures N."""
        return self.shape[0]

    def __getitem__(self, rows: int | slice | ArrayLike) -> NDArray[np.uint8]:
        """One picture (height, width, channels), or several (n, height, width, channels).

        Raises:
            IndexError: There is no such row.
            PictureError: A picture was changed after it was written.
            OSError: The file cannot be read.
        """
        chosen = np.asarray(np.arange(len(self))[rows])  # type: ignore[index]  # numpy's own errors are right
        if chosen.ndim == 0:
            return self._picture(int(chosen))
        found = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        for place, row in enumerate(chosen.tolist()):
            again = place and np.array_equal(self._table[row], self._table[chosen[place - 1]])
            found[place] = found[place - 1] if again else self._picture(row)
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        """Enter with the file open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def _picture(self, row: int) -> NDArray[np.uint8]:
        try:
            content = self._content(row)
            if self.codec.kind == "jpeg":
                return decode_jpeg(content, self.shape[1:])
            return decode_lossless(content, self.shape[1:])  # checks the checksum at its end
        except PictureError as error:
            raise PictureError(f"picture {row}: {error}") from error

    def _content(self, row: int) -> bytes:
        offset, size, *crc = self._table[row].tolist()
        content = os.pread(self._file.fileno(), size, offset)
        if len(content) != size:
            raise PictureError("it was cut off")
        if self.codec.kind == "jpeg" and [crc32c(content)] != crc:
            raise PictureError("its checksum is wrong: it was changed after it was written")
        if self.codec.kind == "lossless" and crc and int.from_bytes(content[-4:], "little") != crc[0]:
            raise PictureError("its checksum is that of another picture")
        return content


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], offset + written)
