"""Zstandard, unpacked only into the room that was announced for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numcodecs.zstd import Zstd  # type: ignore[import-untyped]  # ships no types

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ZSTD = Zstd(level=1)
_MAGIC = b"\x28\xb5\x2f\xfd"


def pack(values: NDArray[Any]) -> bytes:
    """Pack an array's bytes at level 1."""
    return bytes(_ZSTD.encode(values))


def unpack_into(content: bytes, out: NDArray[Any]) -> None:
    """Fill an array with what was packed.

    Raises:
        ValueError: The content is not packed, damaged, or does not announce exactly the size of the array;
            nothing larger is ever unpacked.
    """
    size = _announced(content)
    if size != out.nbytes:
        raise ValueError(f"{size} bytes are packed in it, {out.nbytes} are needed")
    try:
        _ZSTD.decode(content, out=out)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _announced(content: bytes) -> int:
    """Frame_Content_Size of a Zstandard frame (RFC 8878, section 3.1.1.1.4)."""
    if content[:4] != _MAGIC or len(content) < 6:
        raise ValueError("it does not begin as packed data do")
    descriptor = content[4]
    alone = descriptor >> 5 & 1
    start = 5 + (1 - alone) + (0, 1, 2, 4)[descriptor & 3]
    length = (alone, 2, 4, 8)[descriptor >> 6]
    if not length:
        raise ValueError("it does not announce its size")
    return int.from_bytes(content[start : start + length], "little") + (256 if length == 2 else 0)
