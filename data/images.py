"""How camera pictures are stored: lossless by default, as JPEG or AV1 by choice.

Lossless is the difference to the row above, then Zstandard. On real frames of two cameras (424x240) this took
a fifth of the raw size, with sensor noise added a half: less than PNG, at five times its speed. Written as
Zarr codecs (transpose, numcodecs.delta, bytes, zstd, crc32c) it can be read by any Zarr 3 reader that knows
numcodecs.
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import google_crc32c
import numpy as np

from data.packing import pack, unpack_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_CRC = struct.Struct("<I")
_JPEG_CHANNELS = {1: "L", 3: "RGB"}
_VIDEO_SIDE = 64
_MAX_PICTURE_BYTES = 1 << 30


class PictureError(ValueError):
    """A stored picture is not what was written, or not what was declared."""


@dataclass(frozen=True)
class PictureCodec:
    """How pictures are stored.

    Attributes:
        kind: ``"lossless"``; ``"jpeg"``, frame by frame; or ``"av1"``, one video per camera, encoded when the
            episode is finished and lossless until then. Pictures with other than 1 or 3 channels are always
            stored lossless, and so are those with a side below 64 where AV1 was chosen.
        quality: 1 to 100, of JPEG and AV1; more is better and larger. Lossless ignores it.
    """

    kind: Literal["lossless", "jpeg", "av1"] = "lossless"
    quality: int = 90

    def __post_init__(self) -> None:
        """Refuse what is no codec."""
        if self.kind not in ("lossless", "jpeg", "av1"):
            raise ValueError(
                f"Pictures cannot be stored as {self.kind!r}; allowed: 'lossless', 'jpeg', 'av1'."
            )
        if not 1 <= self.quality <= 100:
            raise ValueError(f"Picture quality is {self.quality}; 1 (small) to 100 (good) is allowed.")

    def to_json(self) -> dict[str, Any]:
        """The codec with JSON types only; the inverse of `from_json`."""
        return {"kind": "lossless"} if self.kind == "lossless" else asdict(self)

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> PictureCodec:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is no codec.
        """
        try:
            return cls(**mapping)
        except TypeError as error:
            raise ValueError(f"No picture codec can be read from {dict(mapping)!r}: {error}.") from error

    def fitting(self, shape: tuple[int, ...]) -> PictureCodec:
        """This codec, or lossless where it cannot hold pictures of (height, width, channels)."""
        too_small = self.kind == "av1" and min(shape[:2]) < _VIDEO_SIDE
        return PictureCodec() if too_small or shape[2] not in _JPEG_CHANNELS else self


def is_picture(sample: NDArray[Any]) -> bool:
    """Whether one sample is a (height, width, channels) picture of 8-bit values."""
    return sample.dtype == np.uint8 and sample.ndim == 3 and bool(sample.size)


def crc32c(content: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli), as Zarr's codec of that name computes it."""
    return int(google_crc32c.value(bytes(content)))


def encode_lossless(picture: NDArray[np.uint8]) -> bytes:
    """One (height, width, channels) picture as the inner chunk of a Zarr array with `lossless_codecs`."""
    columns = np.ascontiguousarray(picture.reshape(picture.shape[0], -1).T).ravel()
    steps = np.empty_like(columns)
    steps[0] = columns[0]
    np.subtract(columns[1:], columns[:-1], out=steps[1:])
    content = pack(steps)
    return content + _CRC.pack(crc32c(content))


def decode_lossless(content: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The inverse of `encode_lossless`; `shape` is (height, width, channels).

    Raises:
        PictureError: The content was changed, or holds another number of values.
    """
    check_size(shape)
    if len(content) <= _CRC.size or _CRC.unpack(content[-_CRC.size :])[0] != crc32c(content[: -_CRC.size]):
        raise PictureError("its checksum is wrong: it was changed after it was written")
    height, wide = shape[0], shape[1] * shape[2]
    steps = np.empty((wide, height), np.uint8)
    try:
        unpack_into(content[: -_CRC.size], steps)
    except ValueError as error:
        raise PictureError(f"it cannot be unpacked to {shape} ({error})") from error
    rows = np.ascontiguousarray(steps.T)
    np.add.accumulate(rows, axis=0, out=rows)
    rows[:, 1:] += np.cumsum(rows[-1], dtype=np.uint8)[:-1]  # columns follow each other in one difference
    return rows.reshape(shape)


def lossless_codecs(axes: int = 4) -> list[dict[str, Any]]:
    """Zarr 3 codecs of one picture in an array of (N, height, width, channels)."""
    delta = {"dtype": "|u1", "astype": "|u1"}
    return [
        {"name": "transpose", "configuration": {"order": [0, *range(2, axes), 1]}},
        {"name": "numcodecs.delta", "configuration": delta},
        {"name": "bytes"},
        {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
        {"name": "crc32c"},
    ]


def encode_jpeg(picture: NDArray[np.uint8], quality: int) -> bytes:
    """One (height, width, 1 or 3) picture as a JPEG file, colours at full resolution from quality 90 on."""
    from PIL import Image

    mode = _JPEG_CHANNELS[picture.shape[2]]
    pixels = picture[:, :, 0] if mode == "L" else picture
    buffer = io.BytesIO()
    sampling = 0 if quality >= 90 else 2
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=sampling)
    return buffer.getvalue()


def decode_jpeg(content: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Pixels of a JPEG file; its declared size is checked before anything is unpacked.

    Raises:
        PictureError: It is no JPEG, or of another size than (height, width, channels).
    """
    from PIL import Image

    check_size(shape)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
                if image.size != (shape[1], shape[0]) or image.mode != _JPEG_CHANNELS.get(shape[2]):
                    raise PictureError(f"it says {image.size} {image.mode}, where {shape} was declared")
                return np.array(image).reshape(shape)
    except (OSError, SyntaxError, Warning, Image.DecompressionBombError) as error:
        raise PictureError(f"it is no whole JPEG picture ({error})") from error


def check_size(shape: tuple[int, ...]) -> None:
    """Refuse sizes that no camera has, before memory is taken for them.

    Raises:
        PictureError: It is no (height, width, channels), or larger than 1 GiB.
    """
    if len(shape) != 3 or min(shape) < 1 or shape[0] * shape[1] * shape[2] > _MAX_PICTURE_BYTES:
        raise PictureError(f"a picture of {shape} is not possible")
