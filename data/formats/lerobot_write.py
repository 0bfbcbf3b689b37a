"""Writes a LeRobotDataset version 3 through LeRobot itself, and a sidecar with what that cannot hold."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import DatasetError
from data.features import from_array, to_json
from data.formats.compare import refuse_misfit
from data.formats.extras import require
from data.formats.lerobot_columns import Columns, choose, lerobot_features, rows
from data.formats.sidecar import SidecarWriter, checksum
from data.formats.target import new_target
from data.layout import check_key, episode_arrays, episode_facts
from data.records import Outcome, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.features import Feature, Features
    from data.records import Episode

CHECKSUMS = "columns_sha256"
"""Fact of an episode in the sidecar: checksums of observations that lie in LeRobot's files, by key."""
SIDECAR = "meta/robot_rl_episodes.parquet"
"""Where in a dataset the sidecar lies; LeRobot leaves the file alone."""
_RATE_SLACK = 0.02
_LEAST_SIDE = 64


@dataclass(frozen=True)
class WriteLeRobot:
    """How a LeRobotDataset is written.

    Attributes:
        images: Keep cameras as ``"image"`` (lossless, reads back equal) or ``"video"`` (small, with loss).
        codec: Of the videos.
        crf: Quality of the videos, lower is better.
        fps: Frames per second to declare; from the action specification or the time stamps when None.
    """

    images: Literal["image", "video"] = "image"
    codec: str = "libsvtav1"
    crf: int = 30
    fps: int | None = None

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
        if self.fps is not None and self.fps < 1:
            raise ValueError(f"fps is {self.fps}; a positive whole number is needed.")


def write_lerobot(
    episodes: Iterable[Episode],
    features: Features,
    action_spec: Mapping[str, Any] | None,
    path: Path,
    options: WriteLeRobot,
) -> tuple[str, ...]:
    """Write a LeRobotDataset; see `data.formats.registry.Format.write`."""
    remaining = iter(episodes)
    first = next(remaining, None)
    if first is None:
        raise DatasetError(f"There are no episodes to write to {path}; LeRobot has no empty datasets.")
    for key in first.observations:
        check_key(key)  # LeRobot makes folders of these names
    known = {k: features[k] if k in features else from_array(v[0]) for k, v in first.observations.items()}
    writer = _Writer(known, first.action.shape[1], _fps(first, action_spec, options), options)
    with new_target(path) as part:
        dataset = writer.create(part, first, action_spec)
        header = {**writer.header, "action_spec": None if action_spec is None else dict(action_spec)}
        with contextlib.ExitStack() as stack:
            _quiet(stack)
            # Also after an error: LeRobot would do it later, into a removed folder.
            stack.callback(dataset.finalize)
            sidecar = stack.enter_context(SidecarWriter(part / SIDECAR, header))
            for number, episode in enumerate(itertools.chain([first], remaining)):
                writer.add(dataset, sidecar, number, episode)
        shutil.rmtree(part / "images", ignore_errors=True)  # LeRobot's, empty by now
    return writer.notes


class _Writer:
    """What is the same for every episode, and what was noticed."""

    def __init__(self, features: Mapping[str, Feature], width: int, fps: int, options: WriteLeRobot) -> None:
        self.features = features
        self._width = width
        self.fps = fps
        self.columns: Columns = choose(features)
        self._video = options.images == "video"
        self._module = require("lerobot.datasets.lerobot_dataset", "lerobot", "Writing a LeRobotDataset")
        self._encoder = _encoder(options, {key: features[key] for key in self.columns.pictures})
        self._off_rate = 0
        self._paused = 0
        self._no_reward = 0
        self._no_outcome = 0

    @property
    def header(self) -> dict[str, Any]:
        """What the sidecar says of all episodes."""
        kept = {"pictures": list(self.columns.pictures), "arrays": list(self.columns.arrays)}
        return {"features": to_json(self.features), "columns": kept, "lossy": self._video}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the dataset does not hold as it was, one sentence each."""
        made = [f"{key} is in the sidecar only: {reason}." for key, reason in self.columns.apart.items()]
        if self._video and self.columns.pictures:
            made.append(f"Pictures of {', '.join(self.columns.pictures)} were compressed with loss.")
        if self._off_rate:
            made.append(
                f"{self._off_rate} episodes did not run at {self.fps} steps per second; LeRobot's time is "
                "frame / fps, the measured times are in the sidecar."
            )
        if self._paused:
            made.append(f"{self._paused} paused steps are rows like others; robot_rl.source marks them.")
        if self._no_reward:
            made.append(
                f"next.reward is 0 at {self._no_reward} steps whose reward is not known; valid.next.reward "
                "is False there."
            )
        if self._no_outcome:
            made.append(
                f"next.success is False throughout {self._no_outcome} episodes whose outcome is not known; "
                "valid.next.success is False there."
            )
        return tuple(made)

    def create(self, root: Path, first: Episode, action_spec: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - LeRobot has no types
        """A new, empty `LeRobotDataset`."""
        names = _action_names(first, action_spec)
        return self._module.LeRobotDataset.create(
            repo_id="local/robot_rl",
            root=root,
            fps=self.fps,
            robot_type=first.robot or None,
            features=lerobot_features(self.features, self.columns, names, video=self._video),
            use_videos=self._video,
            video_backend="pyav",  # only for reading back; its choice of one may log a page about torchcodec
            **self._encoder,
        )

    def add(self, dataset: Any, sidecar: SidecarWriter, number: int, episode: Episode) -> None:  # noqa: ANN401 - LeRobot has no types
        """Write one episode."""
        refuse_misfit(episode, self.features, self._width)
        table = rows(episode, self.columns)
        for t in range(len(episode)):
            frame: dict[str, Any] = {key: values[t] for key, values in table.items()}
            dataset.add_frame({**frame, "task": episode.task})
        # One process for each camera, which is LeRobot's default, costs more than it saves here.
        dataset.save_episode(parallel_encoding=False)
        sidecar.add(number, {**episode_facts(episode), CHECKSUMS: self._sums(episode)}, self._apart(episode))
        self._off_rate += abs(_measured(episode) / self.fps - 1.0) > _RATE_SLACK
        self._paused += int((episode.source == Source.PAUSED).sum())
        self._no_reward += int(np.isnan(episode.reward).sum())
        self._no_outcome += episode.outcome is Outcome.UNKNOWN

    def _apart(self, episode: Episode) -> dict[str, NDArray[Any]]:
        arrays = episode_arrays(episode)
        for key in (*self.columns.pictures, *self.columns.arrays):
            arrays[f"observations/{key}"] = episode.observations[key][len(episode) :]
        return arrays

    def _sums(self, episode: Episode) -> dict[str, str]:
        exact = self.columns.arrays if self._video else (*self.columns.pictures, *self.columns.arrays)
        return {key: checksum(episode.observations[key][: len(episode)]) for key in exact}


def _quiet(stack: contextlib.ExitStack) -> None:
    """Keep the progress bars that LeRobot's dependency shows for every episode away from the terminal."""
    datasets = require("datasets", "lerobot", "Writing a LeRobotDataset")
    if datasets.is_progress_bar_enabled():
        datasets.disable_progress_bars()
        stack.callback(datasets.enable_progress_bars)


def _fps(episode: Episode, action_spec: Mapping[str, Any] | None, options: WriteLeRobot) -> int:
    if options.fps is not None:
        return options.fps
    rate = float((action_spec or {}).get("rate_hz") or _measured(episode))
    if not np.isfinite(rate) or round(rate) < 1:
        raise DatasetError(
            f"Episode {episode.id} has {len(episode)} steps at {rate} per second; say fps, since LeRobot "
            "needs a positive whole number."
        )
    return round(rate)


def _measured(episode: Episode) -> float:
    """Median rate of an episode's steps, Hz; NaN where there is none."""
    gaps = np.diff(episode.monotonic_time)
    gap = float(np.median(gaps)) if len(gaps) else 0.0
    return 1.0 / gap if gap > 0.0 else float("nan")


def _action_names(episode: Episode, action_spec: Mapping[str, Any] | None) -> list[str]:
    size = episode.action.shape[1]
    groups = (action_spec or {}).get("groups", ())
    names = [f"{group['name']}.{name}" for group in groups for name in group.get("names", ())]
    return names if len(names) == size else [f"a{i}" for i in range(size)]


def _encoder(options: WriteLeRobot, pictures: Mapping[str, Feature]) -> dict[str, Any]:
    if options.images != "video" or not pictures:
        return {}
    for key, feature in pictures.items():
        height, width, _ = feature.shape
        if min(height, width) < _LEAST_SIDE or height % 2 or width % 2:
            raise DatasetError(
                f"{key} has {width} x {height} pixels; encoders of video need even sides of at least "
                f"{_LEAST_SIDE} (a smaller one blocks LeRobot's for ever). Write it with images='image'."
            )
    configs = require("lerobot.configs", "lerobot", "Encoding videos")
    return {"rgb_encoder": configs.RGBEncoderConfig(vcodec=options.codec, crf=options.crf)}
