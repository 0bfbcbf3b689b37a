"""Looks at the files of a bag before the rosbags package does, which would unpack anything.

Every record of an MCAP file has to lie within the file, and every packed part to unfold to what it says.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from data.errors import DatasetError
from data.formats.extras import require
from data.formats.limits import Budget

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

MCAP = b"\x89MCAP0\r\n"
"""How an MCAP file begins and ends."""
_CHUNK = 6
_FOOTER = 2


def check_file(file: Path, limit: int) -> set[int]:
    """Check a file of a bag before it is opened.

    Args:
        file: Ends in ``.mcap`` or ``.db3``.
        limit: Greatest size in bytes that one packed part may unfold to.

    Returns:
        Where the packed parts of an MCAP file begin; a database has none.

    Raises:
        DatasetError: It is cut short, unfolds to too much, or was not closed.
    """
    if file.suffix == ".mcap":
        return _check_mcap(file, limit)
    waiting = file.with_name(file.name + "-wal")
    if waiting.exists() and waiting.stat().st_size:
        raise DatasetError(
            f"{file} was not closed: {waiting.name} holds messages that are not in it yet. Run "
            f"`sqlite3 {file.name} 'PRAGMA wal_checkpoint'` on a copy of both."
        )
    if set("?#%") & set(str(file)):
        raise DatasetError(f"{file}: a path with '?', '#' or '%' cannot be opened as a database; rename it.")
    return set()


def _check_mcap(file: Path, limit: int) -> set[int]:
    """Walk the records of an MCAP file; the layout is that of its specification."""
    size = file.stat().st_size
    with file.open("rb") as content:
        if content.read(len(MCAP)) != MCAP:
            raise DatasetError(f"{file} does not begin like an MCAP file.")
        end = size - len(MCAP)
        footer = False
        chunks = set()
        while content.tell() < end:
            place = content.tell()
            head = content.read(9)
            code, length = struct.unpack("<BQ", head) if len(head) == 9 else (0, size)
            if place + 9 + length > end:
                raise _cut_short(file, place)
            if code == _CHUNK:
                _check_chunk(content, length, limit, f"{file}, chunk at byte {place}")
                chunks.add(place)
            footer = code == _FOOTER
            content.seek(place + 9 + length)
        content.seek(end)
        if not footer or content.read() != MCAP:
            raise _cut_short(file, end)
    return chunks


def _check_chunk(content: BinaryIO, length: int, limit: int, where: str) -> None:
    record = content.read(length)
    try:
        unpacked, _, name_length = struct.unpack_from("<QII", record, 16)
        packing = record[32 : 32 + name_length].decode()
        (packed,) = struct.unpack_from("<Q", record, 32 + name_length)
        data = record[40 + name_length : 40 + name_length + packed]
    except (struct.error, UnicodeDecodeError) as error:
        raise DatasetError(f"{where} is damaged: {error}.") from error
    Budget(limit, where).spend(unpacked, "it")
    if packing == "zstd":
        found = len(unpack_zstd(data, unpacked, where))
    elif packing == "lz4":
        found = len(_unpack_lz4(data, unpacked, where))
    elif packing:
        raise DatasetError(f"{where} is packed with {packing!r}; read are zstd and lz4.")
    else:
        found = len(data)
    if found != unpacked:
        raise DatasetError(f"{where} is damaged: it holds {found} bytes and says {unpacked}.")


def unpack_zstd(data: bytes, limit: int, where: str) -> bytes:
    """Unpack Zstandard data.

    Args:
        data: One whole frame.
        limit: Greatest number of bytes it may unfold to.
        where: What it is, for messages.

    Raises:
        DatasetError: It is broken, or unfolds to more.
    """
    zstd = require("backports.zstd", "formats", "Reading a ROS 2 bag")
    return _unpack(zstd.ZstdDecompressor(), data, limit, where)


def _unpack_lz4(data: bytes, limit: int, where: str) -> bytes:
    lz4 = require("lz4.frame", "formats", "Reading a ROS 2 bag")
    return _unpack(lz4.LZ4FrameDecompressor(), data, limit, where)


def _unpack(decompressor: Any, data: bytes, limit: int, where: str) -> bytes:  # noqa: ANN401 - of either package
    try:
        found = bytes(decompressor.decompress(data, max_length=limit + 1)) if data else b""
    except Exception as error:  # the packages raise errors of their own
        raise DatasetError(f"{where} cannot be unpacked: {error}.") from error
    if len(found) > limit or (data and (not decompressor.eof or decompressor.unused_data)):
        raise DatasetError(f"{where} unfolds to more than {limit} bytes, or is cut short; it is not read.")
    return found


def _cut_short(file: Path, place: int) -> DatasetError:
    return DatasetError(
        f"{file} is cut short: no whole record at byte {place} of {file.stat().st_size}. `mcap recover` "
        "saves what is there into a new file."
    )
