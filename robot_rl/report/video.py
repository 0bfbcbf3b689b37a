"""Short videos as H.264 in MP4, small enough to be carried inside a page."""

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

import av
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av import VideoStream

# The first that this build of FFmpeg has; browsers play all of them.
ENCODERS = ("libx264", "libopenh264", "libvpx-vp9", "libvpx")


@cache
def encoder() -> str:
    """Name of the encoder that will be used.

    Raises:
        RuntimeError: if PyAV has none that browsers play.
    """
    for name in ENCODERS:
        if name in av.codecs_available:
            return name
    raise RuntimeError(
        f"PyAV has none of the encoders {', '.join(ENCODERS)}: pip install --force-reinstall av"
    )


def media_type() -> str:
    """MIME type of what :func:`encode` returns."""
    return "video/webm" if encoder().startswith("libvpx") else "video/mp4"


def encode(frames: Sequence[NDArray[np.uint8]], rate: float) -> bytes:
    """Encode a video.

    Args:
        frames: (H, W, 3) uint8 RGB each, all of one size, at least one; an odd last row or column is cut off.
        rate: frames per second.

    Returns:
        the file's bytes.
    """
    if not frames or any(frame.shape != frames[0].shape or frame.dtype != np.uint8 for frame in frames):
        raise ValueError("frames must be uint8 arrays (H, W, 3) of one size, at least one")
    height, width = (side // 2 * 2 for side in frames[0].shape[:2])
    buffer = io.BytesIO()
    webm = media_type() == "video/webm"
    with av.open(buffer, "w", format="webm" if webm else "mp4") as container:
        stream = cast("VideoStream", container.add_stream(encoder(), rate=round(rate)))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {} if webm else {"crf": "26", "preset": "slow"}
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return buffer.getvalue()
