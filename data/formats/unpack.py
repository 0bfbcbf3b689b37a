"""Decompression whose result has a size that is known beforehand; a bomb stops at that size.

Each decoder takes the content and the size, and gives bytes of that size or raises; one that is handed a
longer stream decodes at most one byte more.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import TYPE_CHECKING, Any

from numcodecs.blosc import Blosc  # type: ignore[import-untyped]  # ships no types
from numcodecs.lz4 import LZ4  # type: ignore[import-untyped]  # ships no types
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]  # ships no types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class UnpackError(ValueError):
    """Content cannot be decompressed, or not to the size that is needed."""


def unpack(content: bytes, codec: str, size: int) -> bytes:
    """Decompress to exactly `size` bytes.

    Args:
        content: The compressed bytes.
        codec: One of `CODECS`; ``""`` for none.
        size: How many bytes there must be.

    Raises:
        UnpackError: The content is broken, or unfolds to another size.
        KeyError: The codec is unknown.
    """
    decode = CODECS[codec]
    try:
        raw = decode(content, size)
    except UnpackError:
        raise
    except Exception as error:  # decoders raise what they like on broken content
        raise UnpackError(str(error) or repr(error)) from error
    if len(raw) != size:
        raise UnpackError(f"unfolds to {'more' if len(raw) > size else 'less'} than {size} bytes")
    return raw


def zstd_size(content: bytes) -> int | None:
    """How many bytes a Zstandard frame says that it unfolds to, RFC 8878 section 3.1.1; None if it does not.

    Raises:
        UnpackError: It is no such frame.
    """
    if not content.startswith(_ZSTD_MAGIC) or len(content) < 6:
        raise UnpackError("it is no Zstandard frame")
    descriptor = content[4]
    flag, single = descriptor >> 6, descriptor >> 5 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    length = (single, 2, 4, 8)[flag]
    if not length:
        return None
    return int.from_bytes(content[start : start + length], "little") + (256 if flag == 1 else 0)


def _blosc(content: bytes, size: int) -> bytes:
    if len(content) < 16:
        raise UnpackError("it is cut short")
    _refuse_other_size(int.from_bytes(content[4:8], "little"), size)
    return bytes(Blosc().decode(content))


def _zstd(content: bytes, size: int) -> bytes:
    _refuse_other_size(zstd_size(content), size)
    out = bytearray(size)
    Zstd().decode(content, out=out)
    return bytes(out)


def _lz4(content: bytes, size: int) -> bytes:
    _refuse_other_size(int.from_bytes(content[:4], "little"), size)
    return bytes(LZ4().decode(content))


def _refuse_other_size(said: int | None, size: int) -> None:
    if said != size:
        raise UnpackError(f"its header says {said} bytes, {size} are needed")


def _bounded(make: Callable[[], Any]) -> Callable[[bytes, int], bytes]:
    """Decoder of the standard library that stops one byte after what is expected."""

    def decode(content: bytes, size: int) -> bytes:
        decoder = make()
        raw = bytes(decoder.decompress(content, size + 1))
        if len(raw) <= size and not decoder.eof:
            raise UnpackError("it is cut short")
        return raw

    return decode


CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "": lambda content, _: content,
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": _lz4,
    "zlib": _bounded(zlib.decompressobj),
    "gzip": _bounded(lambda: zlib.decompressobj(wbits=31)),
    "bz2": _bounded(bz2.BZ2Decompressor),
    "lzma": _bounded(lzma.LZMADecompressor),
}
"""By the names that Zarr version 2 has for them; LZ4 with the size before the block, as numcodecs writes."""
