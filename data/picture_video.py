"""Pictures of one camera as one AV1 video: small, lossy, and read as a whole."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from data.images import PictureError, check_size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from av import VideoFrame
    from numpy.typing import NDArray

_FORMATS = {1: "gray", 3: "rgb24"}
_RATE = 30
_WORST = 63


def encode_av1(
    path: Path, pictures: Iterable[NDArray[np.uint8]], shape: tuple[int, ...], quality: int
) -> None:
    """Write pictures to a new video file.

    Args:
        path: Where; an MP4.
        pictures: Each (height, width, 1 or 3).
        shape: (height, width, channels). Odd sides are made even by repeating the last row or column.
        quality: 1 to 100.

    Raises:
        OSError: The file cannot be written.
    """
    import av

    height, width = (size + size % 2 for size in shape[:2])
    options = {"crf": str(round(_WORST * (1 - quality / 100))), "preset": "8", "svtav1-params": "lp=1"}
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libsvtav1", rate=_RATE, options=options)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = Fraction(1, _RATE)
        for i, picture in enumerate(pictures):
            even = np.pad(picture, ((0, height - shape[0]), (0, width - shape[1]), (0, 0)), mode="edge")
            frame = av.VideoFrame.from_ndarray(_pixels(even), format=_FORMATS[shape[2]])
            frame.pts = i
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def decode_av1(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read all pictures.

    Sizes and count are compared with what the file says before memory is taken, and a picture that turns out
    larger than its file says is not decoded.

    Args:
        path: The video file.
        shape: (N, height, width, channels).

    Raises:
        PictureError: It is no video of so many pictures of this size.
    """
    import av
    import av.error

    check_size(shape[1:])
    height, width = _even(shape)
    limit = {"max_pixels": str(height * width)}  # opening may decode a picture already, to know its form
    try:
        with av.open(str(path), "r", format="mp4", options=limit, metadata_errors="replace") as container:
            stream = container.streams.video[0]
            _refuse_other(stream.height, stream.width, stream.frames, shape)
            stream.codec_context.options = limit
            found = _decoded(container.decode(stream), shape)
    except (av.error.FFmpegError, IndexError) as error:
        raise PictureError(f"it is no whole video ({error})") from error
    return found


def _decoded(frames: Iterable[VideoFrame], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    found = np.empty(shape, np.uint8)
    count = 0
    for frame in frames:
        if count == shape[0]:
            raise PictureError(f"it holds more than {shape[0]} pictures")
        _refuse_other(frame.height, frame.width, shape[0], shape)
        pixels = frame.to_ndarray(format=_FORMATS[shape[3]])
        found[count] = pixels.reshape(frame.height, frame.width, shape[3])[: shape[1], : shape[2]]
        count += 1
    if count != shape[0]:
        raise PictureError(f"it holds {count} pictures, {shape[0]} were written")
    return found


def _refuse_other(height: int, width: int, count: int, shape: tuple[int, ...]) -> None:
    """Compare what a file says with what was declared; sides were made even."""
    if (height, width) != _even(shape):
        raise PictureError(f"it says {width}x{height}, where {shape} was declared")
    if count != shape[0]:
        raise PictureError(f"it says {count} pictures, {shape[0]} were written")


def _even(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width in the file of pictures (N, height, width, channels)."""
    return shape[1] + shape[1] % 2, shape[2] + shape[2] % 2


def _pixels(picture: NDArray[np.uint8]) -> NDArray[Any]:
    return np.ascontiguousarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
