"""A recorded episode as a rerun recording: cameras, sensors, actions and contact force over time."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.manifest import check_writable
from data.records import Episode
from data.store import EpisodeStore

if TYPE_CHECKING:
    import rerun as rr

MISSING = "rerun is not installed: uv pip install -e '.[view]' (or pip install rerun-sdk)"
ACTIONS = ("action_base", "action_policy", "action_intended", "action")


def find_episode(path: Path) -> tuple[EpisodeStore, str]:
    """The store and the id of an episode that is given by its folder.

    Args:
        path: folder of an episode inside its store; or a store, or a run with one, which means its first
            episode.

    Raises:
        FileNotFoundError: if there is no episode; names those nearby.
    """
    parent = EpisodeStore(path.parent)
    if parent.exists and path.name in parent:
        return parent, path.name
    for folder in (path, path / "episodes", *sorted((path / "shown").glob("*"))):
        store = EpisodeStore(folder)
        if store.exists and len(store):
            return store, store.ids()[0]
    known = f"; the store has {', '.join(parent.ids()[:5])}, ..." if parent.exists and len(parent) else ""
    raise FileNotFoundError(f"{path} is no episode and holds none{known}: give the folder of an episode")


def series(episode: Episode) -> Iterator[tuple[str, NDArray[Any]]]:
    """Everything in an episode that can be drawn over time.

    Yields:
        path in the recording and rows (T or T + 1, N); rows that are all NaN are left out.
    """
    for key, rows in episode.observations.items():
        if rows.dtype != np.uint8:
            yield key.replace(".", "/"), rows.reshape(len(rows), -1).astype(np.float64)
    for name in ACTIONS:
        rows = getattr(episode, name)
        if not np.isnan(rows).all():
            yield f"action/{name.removeprefix('action_') if name != 'action' else 'executed'}", rows
    for key, rows in episode.extra.items():
        yield f"extra/{key}", rows.reshape(len(rows), -1).astype(np.float64)
    yield "reward", episode.reward[:, None]
    yield "gain", episode.gain[:, None]


def images(episode: Episode) -> Mapping[str, NDArray[np.uint8]]:
    """Camera pictures of an episode, (T + 1, H, W, 3) each."""
    return {
        key.replace(".", "/"): rows
        for key, rows in episode.observations.items()
        if rows.dtype == np.uint8 and rows.ndim == 4
    }


def write_recording(episode: Episode, path: Path) -> Path:
    """Write an episode as a rerun recording (``.rrd``), time in control steps.

    Raises:
        ImportError: if rerun is not installed; names the extra.
        ValueError: if the recording cannot be written there.
    """
    check_writable(path, "out")
    recording = _recording(episode)
    recording.save(path)
    _log(recording, episode)
    recording.flush()
    return path


def open_viewer(episode: Episode) -> None:
    """Show an episode in rerun's viewer.

    Raises:
        ImportError: if rerun is not installed; names the extra.
    """
    recording = _recording(episode)
    recording.spawn()
    _log(recording, episode)
    recording.flush()


def _recording(episode: Episode) -> "rr.RecordingStream":
    if importlib.util.find_spec("rerun") is None:
        raise ImportError(MISSING)
    import rerun

    return rerun.RecordingStream("robot-rl", recording_id=episode.id)


def _log(recording: "rr.RecordingStream", episode: Episode) -> None:
    import rerun

    facts = f"# {episode.task}\n\nseed {episode.seed}, {episode.outcome} after {len(episode)} steps\n\n"
    facts += f"base {episode.base_version or 'none'}, refiner {episode.refiner_version or 'none'}"
    recording.log("episode", rerun.TextDocument(facts, media_type="text/markdown"), static=True)
    for name, rows in series(episode):
        times = rerun.TimeColumn("step", sequence=np.arange(len(rows)))
        columns = rerun.Scalars.columns(scalars=rows)
        recording.send_columns(name, indexes=[times], columns=columns)
    for name, pictures in images(episode).items():
        for step, picture in enumerate(pictures):
            recording.set_time("step", sequence=step)
            recording.log(name, rerun.Image(picture).compress())
