"""A recorded episode as a rerun recording: cameras, sensors, touch, actions, who acted, events, values.

Two time axes: ``step`` counts control steps, ``time`` is seconds since the first step. Streams keep their own
stamps on ``time``.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.conventions import to_layout
from data.manifest import check_writable
from data.records import Episode
from data.validate.signals import observation_times

if TYPE_CHECKING:
    import rerun as rr

MISSING = "rerun is not installed: uv pip install -e '.[view]' (or pip install rerun-sdk)"
COLOURS = {
    "policy": (11, 122, 117),
    "human": (180, 84, 26),
    "demo": (93, 101, 110),
    "paused": (200, 198, 192),
}
"""Colour of each source, as in the reports."""
CHANNELS = (1, 3, 4)
"""Grey, colour, and colour with transparency."""
ACTIONS = ("action_base", "action_policy", "action_intended", "action")


def series(episode: Episode) -> Iterator[tuple[str, NDArray[Any]]]:
    """Everything in an episode that can be drawn over its steps.

    Yields:
        path in the recording and rows (T or T + 1, N); rows that are all NaN are left out, touch pads are
        summed over their taxels, (T + 1, channels).
    """
    for key, rows in episode.observations.items():
        if is_touch(key, rows):
            yield f"{_path(key)}/sum", rows.astype(np.float64).sum((1, 2))
        elif rows.dtype != np.uint8:
            yield _path(key), rows.reshape(len(rows), -1).astype(np.float64)
    for name in ACTIONS:
        rows = getattr(episode, name)
        if not np.isnan(rows).all():
            yield f"action/{name.removeprefix('action_') if name != 'action' else 'executed'}", rows
    for key, rows in episode.extra.items():
        yield f"extra/{key}", rows.reshape(len(rows), -1).astype(np.float64)
    if not np.isnan(episode.reward).all():
        yield "reward", episode.reward[:, None]
    yield "gain", episode.gain[:, None]


def is_touch(key: str, rows: NDArray[Any]) -> bool:
    """Whether these are taxels: (N, rows, columns, channels) numbers under a key that says tactile."""
    return "tactile" in key and rows.ndim == 4 and rows.dtype != np.uint8


def images(episode: Episode) -> Mapping[str, NDArray[np.uint8]]:
    """Camera pictures and touch images by path, (T + 1, H, W, 3) each."""
    return {
        _path(key): found
        for key, rows in episode.observations.items()
        if (found := _pictures(key, rows)) is not None
    }


def _pictures(key: str, rows: NDArray[Any]) -> Any:  # noqa: ANN401 - an array, or None for what is no picture
    if rows.dtype == np.uint8 and rows.ndim == 4:
        channels_first = rows.shape[3] not in CHANNELS and rows.shape[1] in CHANNELS
        return to_layout(rows, "chw", "hwc") if channels_first else rows
    return touch_images(rows) if is_touch(key, rows) and len(rows) else None


def touch_images(rows: NDArray[Any], pixels: int = 16) -> NDArray[np.uint8]:
    """Taxels as pictures: brightness is the last channel (pressure), 255 the most of the whole episode.

    Where there are three channels, the first two (shear) shift the colour to red and green; a missing value
    is magenta.

    Args:
        rows: (N, rows, columns, channels).
        pixels: side of one taxel in the picture.

    Returns:
        (N, rows * pixels, columns * pixels, 3) RGB.
    """
    values = rows.astype(np.float64)
    most = np.nanmax(np.abs(values), axis=(0, 1, 2), initial=0.0)
    share = np.abs(values) / np.where(most > 0, most, 1.0)
    colour = np.repeat(share[..., -1:], 3, axis=-1)
    if values.shape[-1] >= 3:
        colour[..., :2] = np.maximum(colour[..., :2], share[..., :2])
    missing = np.asarray(np.isnan(values).any(-1))
    filled = np.where(missing[..., None], np.array([1.0, 0.0, 1.0]), np.nan_to_num(colour))
    large = np.round(255 * filled).astype(np.uint8).repeat(pixels, axis=1)
    return np.asarray(large.repeat(pixels, axis=2))


def acting(episode: Episode) -> Mapping[str, NDArray[np.float64]]:
    """Who acted, (T,) by path: 1 where the source was in control, NaN elsewhere."""
    sources = np.unique(episode.source).tolist()
    return {f"segments/{source}": np.where(episode.source == source, 1.0, np.nan) for source in sources}


def write_recording(
    episode: Episode, path: Path, values: Mapping[str, NDArray[np.floating[Any]]] | None = None
) -> Path:
    """Write an episode as a rerun recording (``.rrd``).

    Args:
        episode: what to show.
        path: the file.
        values: curves of a critic by name, (T,) each.

    Raises:
        ImportError: if rerun is not installed; names the extra.
        ValueError: if a curve has another length than the episode, or the recording cannot be written there.
    """
    check_writable(path, "out")
    recording = _recording(episode, values)
    recording.save(path)
    _log(recording, episode, values or {})
    recording.flush()
    return path


def open_viewer(episode: Episode, values: Mapping[str, NDArray[np.floating[Any]]] | None = None) -> None:
    """Show an episode in rerun's viewer; the arguments and errors are those of `write_recording`."""
    recording = _recording(episode, values)
    recording.spawn()
    _log(recording, episode, values or {})
    recording.flush()


def _recording(
    episode: Episode, values: Mapping[str, NDArray[np.floating[Any]]] | None
) -> "rr.RecordingStream":
    for name, curve in (values or {}).items():
        if np.shape(curve) != (len(episode),):
            raise ValueError(
                f"values[{name!r}] has shape {np.shape(curve)}; episode {episode.id} needs ({len(episode)},)"
            )
    if importlib.util.find_spec("rerun") is None:
        raise ImportError(MISSING)
    import rerun

    return rerun.RecordingStream("robot-rl", recording_id=episode.id)


def _log(
    recording: "rr.RecordingStream", episode: Episode, values: Mapping[str, NDArray[np.floating[Any]]]
) -> None:
    import rerun

    facts = f"# {episode.task}\n\nseed {episode.seed}, {episode.outcome} after {len(episode)} steps\n\n"
    facts += f"base {episode.base_version or 'none'}, refiner {episode.refiner_version or 'none'}"
    recording.log("episode", rerun.TextDocument(facts, media_type="text/markdown"), static=True)
    for name, rows in series(episode):
        recording.send_columns(
            name, indexes=_axes(episode, len(rows)), columns=rerun.Scalars.columns(scalars=rows)
        )
    for name, curve in values.items():
        columns = rerun.Scalars.columns(scalars=np.asarray(curve, np.float64))
        recording.send_columns(f"values/{name}", indexes=_axes(episode, len(episode)), columns=columns)
    _log_segments(recording, episode)
    for name, pictures in images(episode).items():
        _log_pictures(recording, name, pictures, _seconds(episode, len(pictures)), steps=True)
    _log_streams(recording, episode)
    _log_events(recording, episode)


def _log_segments(recording: "rr.RecordingStream", episode: Episode) -> None:
    import rerun

    for name, rows in acting(episode).items():
        colour = COLOURS[name.rpartition("/")[2]]
        style = rerun.SeriesLines(colors=[colour], widths=[12], names=[name.rpartition("/")[2]])
        recording.log(name, style, static=True)
        columns = rerun.Scalars.columns(scalars=rows)
        recording.send_columns(name, indexes=_axes(episode, len(rows)), columns=columns)


def _log_streams(recording: "rr.RecordingStream", episode: Episode) -> None:
    import rerun

    for key, stream in episode.streams.items():
        times = _since_start(episode, stream.times)
        name, pictures = f"streams/{_path(key)}", _pictures(key, stream.values)
        if not len(stream):
            continue
        if pictures is not None:
            _log_pictures(recording, name, pictures, times, steps=False)
            continue
        rows = stream.values.reshape(len(stream), -1).astype(np.float64)
        indexes = [rerun.TimeColumn("time", duration=times)]
        recording.send_columns(name, indexes=indexes, columns=rerun.Scalars.columns(scalars=rows))


def _log_pictures(
    recording: "rr.RecordingStream",
    name: str,
    pictures: NDArray[np.uint8],
    seconds: NDArray[np.float64],
    *,
    steps: bool,
) -> None:
    import rerun

    for index, picture in enumerate(pictures):
        recording.reset_time()
        if steps:
            recording.set_time("step", sequence=index)
        if np.isfinite(seconds[index]):
            recording.set_time("time", duration=float(seconds[index]))
        shown = picture if picture.shape[2] in (3, 4) else picture[:, :, 0]
        recording.log(name, rerun.Image(shown).compress())


def _log_events(recording: "rr.RecordingStream", episode: Episode) -> None:
    import rerun

    urgent = {"emergency_stop", "mark_failure"}
    for event in episode.events:
        recording.reset_time()
        seconds = float(_since_start(episode, np.array([event.time]))[0])
        if np.isfinite(seconds):
            recording.set_time("time", duration=seconds)
        recording.set_time("step", sequence=int(np.searchsorted(episode.monotonic_time, event.time)))
        text = f"{event.kind}: {event.because}" if event.because else str(event.kind)
        level = rerun.TextLogLevel.WARN if event.kind in urgent else rerun.TextLogLevel.INFO
        recording.log("events", rerun.TextLog(text, level=level))


def _axes(episode: Episode, count: int) -> list[Any]:
    """The time axes of T or T + 1 rows; without ``time`` where no times are known."""
    import rerun

    axes = [rerun.TimeColumn("step", sequence=np.arange(count))]
    seconds = _seconds(episode, count)
    if np.isfinite(seconds).all():
        axes.append(rerun.TimeColumn("time", duration=seconds))
    return axes


def _seconds(episode: Episode, count: int) -> NDArray[np.float64]:
    """Seconds since the first step of T rows, or of T + 1 where the last came a period later."""
    return _since_start(episode, observation_times(episode)[:count])


def _since_start(episode: Episode, times: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(times - episode.monotonic_time[0])


def _path(key: str) -> str:
    return key.replace(".", "/")
