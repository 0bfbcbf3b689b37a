"""Compressed pictures of others: their size is read from the header and paid for before they are decoded."""

from __future__ import annotations

import io
import re
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
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_PNG_END = b"IEND\xaeB`\x82"


def picture_form(content: bytes, where: str) -> tuple[int, int, bool]:
    """Height, width and whether it is a 16-bit grey picture, from the header of a JPEG or PNG file.

    Raises:
        DatasetError: It is neither, or cut short.
    """
    try:
        if content.startswith(_PNG) and content[12:16] == b"IHDR" and _PNG_END in content[-64:]:
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
    with av.open(io.BytesIO(content), "r", metadata_errors="replace") as container:
        frame = next(container.decode(video=0))
    return np.asarray(frame.reformat(format="gray16le").to_ndarray(), np.uint16)[..., None]


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Height and width from the only frame header; markers and lengths as in ITU-T T.81, annex B.

    Every marker up to the end of the picture is looked at: a decoder would go on with grey where the file is
    cut short, and take the size of a second frame header.
    """
    place, size = 2, None
    while (marker := _marker(content, place)) != _JPEG_END:
        if marker == 0xFF or marker in _JPEG_BARE_MARKERS:
            place += 1 if marker == 0xFF else 2
            continue
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        if marker in _JPEG_SIZE_MARKERS:
            if size is not None or len(content) < place + 9:
                raise IndexError
            height, width = (int.from_bytes(content[place + i : place + i + 2], "big") for i in (5, 7))
            size = (height, width)
        place += 2 + max(2, length)
        if marker == _JPEG_SCAN:
            after = _AFTER_SCAN.search(content, place)
            place = len(content) if after is None else after.start()
    if size is None:
        raise IndexError
    return size


def _marker(content: bytes, place: int) -> int:
    if content[place] != 0xFF:
        raise IndexError
    return content[place + 1]
