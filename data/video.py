"""Frames of a video at given times, and single pictures, with PyAV."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import av
import av.error
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_SEEK_GAP_S = 3.0


class PictureError(ValueError):
    """A video or picture cannot be decoded, or has no frame at the time that was asked for."""


def read_frames(
    path: Path,
    times: NDArray[np.float64],
    *,
    tolerance_s: float,
    size: tuple[int, int] | None = None,
    declared: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """Decode the frames nearest to some times.

    Args:
        path: Video file.
        times: Presentation times in the file, s, in any order, (N,).
        tolerance_s: Greatest distance between a time and its frame, s.
        size: (height, width) to scale to; as stored when None.
        declared: (height, width) that the frames must have; not checked when None.

    Returns:
        (N, height, width, 3), RGB.

    Raises:
        PictureError: The file is missing or broken, has frames of another size than declared, or has no
            frame near one of the times.
    """
    order = np.argsort(times, kind="stable")
    found: list[NDArray[np.uint8] | None] = [None] * len(times)
    try:
        with av.open(str(path), "r", metadata_errors="replace") as container:
            _refuse_size(container, declared, str(path))
            # A decoder would otherwise fill what it cannot read with grey or the frame before, and go on.
            container.streams.video[0].codec_context.options = {"err_detect": "explode"}
            for run in _runs(order, times):
                for index, picture in _decode(container, times, run, tolerance_s, size):
                    found[index] = picture
    except (av.error.FFmpegError, IndexError) as error:
        raise PictureError(f"{path} cannot be decoded: {error}.") from error
    pictures = [picture for picture in found if picture is not None]
    if len(pictures) < len(times):
        lost = float(times[next(i for i, picture in enumerate(found) if picture is None)])
        raise PictureError(
            f"{path} has no frame within {tolerance_s:.4f} s of {lost:.4f} s; "
            "the video does not fit the time stamps."
        )
    return np.stack(pictures) if pictures else np.zeros((0, *(size or (1, 1)), 3), np.uint8)


def decode_picture(
    content: bytes, size: tuple[int, int] | None = None, *, declared: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """Decode a PNG or JPEG file's content to (height, width, 3), RGB.

    Args:
        content: Bytes of the file.
        size: (height, width) to scale to; as stored when None.
        declared: (height, width) that it must have; not checked when None.

    Raises:
        PictureError: It is no picture, or of another size than declared; nothing is decoded then.
    """
    try:
        with av.open(io.BytesIO(content), "r", metadata_errors="replace") as container:
            _refuse_size(container, declared, "a picture")
            frame = next(container.decode(video=0))
    except (av.error.FFmpegError, IndexError, StopIteration, TypeError) as error:
        raise PictureError(f"A picture of {len(content)} bytes cannot be decoded: {error}.") from error
    return _rgb(frame, size)


def _refuse_size(container: av.container.InputContainer, declared: tuple[int, int] | None, what: str) -> None:
    """Compare before decoding: a few bytes can hold a picture that does not fit in memory."""
    stream = container.streams.video[0]
    found = (stream.height, stream.width)
    if declared is not None and found != tuple(declared):
        raise PictureError(
            f"{what} has frames of {found[1]} x {found[0]} pixels; {declared[1]} x {declared[0]} were "
            "declared."
        )


def _runs(order: NDArray[np.intp], times: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Indices in order of time, cut where seeking is quicker than decoding what lies between."""
    if not len(order):
        return []
    return np.split(order, np.flatnonzero(np.diff(times[order]) > _SEEK_GAP_S) + 1)


def _decode(
    container: av.container.InputContainer,
    times: NDArray[np.float64],
    run: NDArray[np.intp],
    tolerance_s: float,
    size: tuple[int, int] | None,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    stream = container.streams.video[0]
    base = float(stream.time_base or 0) or 1.0 / av.time_base
    container.seek(max(0, int((times[run[0]] - tolerance_s) / base)), stream=stream, backward=True)
    waiting = list(run[::-1])
    previous: tuple[float, av.VideoFrame] | None = None
    for frame in container.decode(stream):
        if frame.pts is None:
            continue
        now = frame.pts * base
        while waiting and now >= times[waiting[-1]]:
            index = int(waiting.pop())
            candidates = [(now, frame)] if previous is None else [previous, (now, frame)]
            yield from _nearest(index, times[index], candidates, tolerance_s, size)
        if not waiting:
            return
        previous = (now, frame)
    if previous is not None:
        for index in reversed(waiting):
            yield from _nearest(int(index), times[index], [previous], tolerance_s, size)


def _nearest(
    index: int,
    time: float,
    candidates: list[tuple[float, av.VideoFrame]],
    tolerance_s: float,
    size: tuple[int, int] | None,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    stamp, frame = min(candidates, key=lambda candidate: abs(candidate[0] - time))
    if abs(stamp - time) <= tolerance_s:
        yield index, _rgb(frame, size)


def _rgb(frame: av.VideoFrame, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    if size is not None:
        frame = frame.reformat(width=size[1], height=size[0], format="rgb24")
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
