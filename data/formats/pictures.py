"""Compressed pictures of others: their size is read from the header and paid for before they are decoded."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import av
import av.error
import numpy as np

from data.errors import DatasetError
from data.video import PictureError, decode_picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.formats.limits import Budget

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset([0x01, *range(0xD0, 0xD8)])


def picture_form(content: bytes, where: str) -> tuple[int, int, bool]:
    """Height, width and whether it is a 16-bit grey picture, from the header of a JPEG or PNG file.

    Raises:
        DatasetError: It is neither, or its header is cut short.
    """
    try:
        if content.startswith(_PNG) and content[12:16] == b"IHDR":
            width, height = (int.from_bytes(content[i : i + 4], "big") for i in (16, 20))
            return height, width, content[24:26] == b"\x10\x00"
        if content.startswith(_JPEG):
            return (*_jpeg_size(content), False)
    except IndexError:
        pass
    raise DatasetError(
        f"{where}: {len(content)} bytes that begin with {content[:8]!r} are no whole JPEG or PNG."
    )


def decode(content: bytes, budget: Budget, where: str) -> NDArray[Any]:
    """Decode a JPEG or PNG file.

    Args:
        content: Bytes of the file.
        budget: Pays for the decoded bytes.
        where: Which picture, for messages.

    Returns:
        (height, width, 3) uint8, RGB as the file says; (height, width, 1) uint16 of a 16-bit grey PNG, such
        as a depth picture.

    Raises:
        DatasetError: It is broken, or passes the budget.
    """
    height, width, deep = picture_form(content, where)
    budget.spend(height * width * (2 if deep else 3), f"{where}, {width} x {height} pixels,")
    try:
        return _decode_grey16(content) if deep else decode_picture(content)
    except (PictureError, av.error.FFmpegError, ValueError, StopIteration) as error:
        raise DatasetError(f"{where} cannot be decoded: {error}") from error


def _decode_grey16(content: bytes) -> NDArray[np.uint16]:
    with av.open(io.BytesIO(content), "r") as container:
        frame = next(container.decode(video=0))
    return np.asarray(frame.reformat(format="gray16le").to_ndarray(), np.uint16)[..., None]


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Height and width from the first frame header; markers and lengths as in ITU-T T.81, annex B."""
    place = 2
    while content[place] == 0xFF:
        marker = content[place + 1]
        if marker == 0xFF or marker in _JPEG_BARE_MARKERS:
            place += 1 if marker == 0xFF else 2
            continue
        if marker in _JPEG_SIZE_MARKERS:
            content[place + 8]  # IndexError where the header is cut short
            height, width = (int.from_bytes(content[place + i : place + i + 2], "big") for i in (5, 7))
            return height, width
        place += 2 + int.from_bytes(content[place + 2 : place + 4], "big")
    raise IndexError
