"""Reads a LeRobotDataset version 3 folder without LeRobot: columns from Parquet, camera frames from video.

Version 3 keeps many episodes in one Parquet file and one video; the episode table says where each lies.
Frames are found by time stamp, never by counting, since a video may hold other episodes before this one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.errors import DatasetError
from data.features import Feature
from data.statistics import FeatureStatistics, compute_statistics
from data.video import PictureError, decode_picture, read_frames
from data.windows import Trajectory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


_INDEX = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_CAMERA_TYPES = ("video", "image")
_EPISODE_TABLE = "meta/episodes/chunk-000/file-000.parquet"
_FIELD = re.compile(r"\{(\w+)(?::0?(\d+)d)?\}")


@dataclass(frozen=True, eq=False)
class LeRobotEpisode:
    """One episode.

    Attributes:
        id: Its number in the dataset.
        task: Task of its first step in words.
        tasks: Task of every step.
        timestamps: (T,), s from its start, as stored.
        columns: Every feature but cameras and indices, (T, *shape) in its declared type.
        fps: Frames per second.
        folder: The dataset, for its frames.
    """

    id: int
    task: str
    tasks: tuple[str, ...]
    timestamps: NDArray[np.float64]
    columns: Mapping[str, NDArray[Any]]
    fps: float
    folder: LeRobotFolder

    def __len__(self) -> int:
        """Number of steps T."""
        return len(self.timestamps)

    def frames(
        self, camera: str, steps: Sequence[int] | None = None, *, size: tuple[int, int] | None = None
    ) -> NDArray[np.uint8]:
        """Decode frames of one camera.

        Args:
            camera: Its key, such as ``"observation.images.top"``.
            steps: Which steps, in any order; all of them when None.
            size: (height, width) to scale to; as stored when None.

        Returns:
            (len(steps), height, width, 3), RGB.

        Raises:
            KeyError: There is no such camera.
            IndexError: There is no such step.
            DatasetError: The video is missing or broken or has no frame at a step's time.
        """
        chosen = np.arange(len(self)) if steps is None else np.asarray(steps, np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"Steps {steps} of episode {self.id}, which has {len(self)}.")
        return self.folder.decode(self, camera, chosen, size)

    def trajectory(
        self,
        keys: Collection[str] | None = None,
        *,
        size: tuple[int, int] | None = None,
        label: str = "action",
    ) -> Trajectory:
        """The episode as material for behaviour cloning, pictures decoded.

        Args:
            keys: Observations to take, cameras too; every ``observation.`` key when None.
            size: (height, width) to scale pictures to.
            label: Column to imitate.

        Raises:
            KeyError: The dataset lacks a key.
        """
        cameras = self.folder.cameras
        known = {key for key in (*self.columns, *cameras) if key.startswith("observation.")}
        chosen = sorted(known) if keys is None else list(keys)
        missing = sorted({*chosen, label} - {*self.columns, *cameras})
        if missing:
            raise KeyError(f"{self.folder.path} lacks {missing}; it has {sorted({*self.columns, *cameras})}.")
        observations = {
            key: self.frames(key, size=size) if key in cameras else self.columns[key] for key in chosen
        }
        return Trajectory(
            observations, self.columns[label], None, self.task, f"{self.folder.path.name}:{self.id}"
        )


class LeRobotFolder:
    """A LeRobotDataset v3 folder.

    Args:
        path: The folder that holds ``meta``, ``data`` and ``videos``.

    Raises:
        DatasetError: It is no such folder, has another version, or a file is missing or broken; names the
            file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._info = _read_info(self.path)
        self.fps = float(self._info["fps"])
        self.robot = str(self._info.get("robot_type") or "")
        self._kinds = {key: str(spec["dtype"]) for key, spec in self._info["features"].items()}
        self.features: dict[str, Feature] = {
            key: _feature(self.path, key, spec)
            for key, spec in self._info["features"].items()
            if key not in _INDEX and spec["dtype"] != "string"
        }
        self._episodes = self._read_episodes()
        self._tasks = self._read_tasks()
        self._refuse_missing_files()

    @property
    def cameras(self) -> tuple[str, ...]:
        """Keys of the cameras."""
        return tuple(key for key, kind in self._kinds.items() if kind in _CAMERA_TYPES)

    @property
    def ids(self) -> list[int]:
        """Numbers of the episodes, sorted."""
        return sorted(self._episodes)

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._episodes)

    def __iter__(self) -> Iterator[LeRobotEpisode]:
        """Every episode in order."""
        return (self.read(id_) for id_ in self.ids)

    def read(self, id_: int) -> LeRobotEpisode:
        """Read one episode; its frames are decoded only when asked for.

        Raises:
            KeyError: There is no such episode.
            DatasetError: Its rows are missing or do not fit their description.
        """
        if id_ not in self._episodes:
            raise KeyError(f"No episode {id_} in {self.path}; it has {self.ids}.")
        row = self._episodes[id_]
        table = self._rows(id_, row)
        order = _integers(table["frame_index"].to_numpy(), "frame_index", id_)
        if not np.array_equal(order, np.arange(len(order))):
            raise DatasetError(
                f"Episode {id_} of {self.path}: frame_index does not count from 0 in steps of 1."
            )
        numbers = _integers(table["task_index"].to_numpy(), "task_index", id_)
        unknown = sorted(set(numbers.tolist()) - self._tasks.keys())
        if unknown:
            raise DatasetError(
                f"Episode {id_} of {self.path} has tasks {unknown}, which meta/tasks.parquet lacks."
            )
        tasks = tuple(self._tasks[number] for number in numbers.tolist())
        columns = {
            key: self._column(table, key, f) for key, f in self.features.items() if key not in self.cameras
        }
        times = table["timestamp"].to_numpy().astype(np.float64)
        return LeRobotEpisode(id_, tasks[0], tasks, times, columns, self.fps, self)

    def statistics(self) -> dict[str, FeatureStatistics]:
        """Statistics of every feature but the cameras, computed from the data.

        Those in the folder are not used: some writers keep them for cameras only, or for part of the
        episodes.
        """
        episodes = list(self)
        keys = [key for key in self.features if key not in self.cameras]
        arrays = {key: np.concatenate([episode.columns[key] for episode in episodes]) for key in keys}
        return compute_statistics(arrays, self.features)

    def decode(
        self, episode: LeRobotEpisode, camera: str, steps: NDArray[np.int64], size: tuple[int, int] | None
    ) -> NDArray[np.uint8]:
        """Frames of one camera at some steps; see `LeRobotEpisode.frames`."""
        if camera not in self.cameras:
            raise KeyError(f"No camera {camera!r} in {self.path}; it has {list(self.cameras)}.")
        row = self._episodes[episode.id]
        try:
            if self._kinds[camera] == "image":
                pictures = self._rows(episode.id, row)[camera].to_pylist()
                return np.stack([decode_picture(pictures[step]["bytes"], size) for step in steps])
            start = float(_entry(row, f"videos/{camera}/from_timestamp"))
            path = self.path / self._video(row, camera)
            return read_frames(path, start + episode.timestamps[steps], tolerance_s=0.2 / self.fps, size=size)
        except (PictureError, TypeError, KeyError) as error:
            raise DatasetError(f"Episode {episode.id} of {self.path}, {camera}: {error}") from error

    def _rows(self, id_: int, row: Mapping[str, Any]) -> pa.Table:
        table = _read_table(self.path, self._data(row))
        missing = [
            key
            for key in ("timestamp", "frame_index", "task_index", "episode_index")
            if key not in table.schema.names
        ]
        if missing:
            raise DatasetError(f"{self._data(row)} in {self.path} lacks the columns {missing}.")
        table = table.filter(pc.equal(table["episode_index"], id_))
        if len(table) != int(row["length"]) or not len(table):
            raise DatasetError(
                f"Episode {id_} of {self.path} has {int(row['length'])} steps in the episode table, but "
                f"{len(table)} in {self._data(row)}."
            )
        return table

    def _column(self, table: pa.Table, key: str, feature: Feature) -> NDArray[Any]:
        if key not in table.schema.names:
            raise DatasetError(f"{self.path} declares {key!r}, but its data have {table.schema.names}.")
        column = table[key].combine_chunks()
        if column.null_count:
            raise DatasetError(
                f"{key!r} in {self.path} has {column.null_count} empty entries; repair the dataset."
            )
        while isinstance(column, pa.Array) and pa.types.is_nested(column.type):
            column = column.flatten()
        values = column.to_numpy(zero_copy_only=False)
        if values.size != len(table) * feature.size:
            raise DatasetError(
                f"{key!r} in {self.path} holds {values.size} numbers in {len(table)} rows; "
                f"shape {feature.shape} was declared."
            )
        return np.asarray(values.reshape(len(table), *feature.shape), feature.dtype)

    def _read_episodes(self) -> dict[int, dict[str, Any]]:
        files = sorted((self.path / "meta/episodes").glob("chunk-*/file-*.parquet"))
        if not files:
            raise DatasetError(
                f"{self.path} has no {_EPISODE_TABLE}, the table that says where each episode lies. "
                "Copy it from the source of the dataset, or record again: LeRobot writes it in finalize()."
            )
        episodes: dict[int, dict[str, Any]] = {}
        for file in files:
            table = _read_table(self.path, file.relative_to(self.path).as_posix())
            table = table.select([name for name in table.schema.names if not name.startswith("stats/")])
            for row in table.to_pylist():
                episodes[int(_entry(row, "episode_index"))] = row
        return episodes

    def _read_tasks(self) -> dict[int, str]:
        table = _read_table(self.path, "meta/tasks.parquet")
        texts = [name for name in table.schema.names if name != "task_index"]
        if "task_index" not in table.schema.names or not texts:
            raise DatasetError(
                f"meta/tasks.parquet in {self.path} has {table.schema.names}, no task and task_index."
            )
        text = "task" if "task" in texts else texts[0]
        return {int(row["task_index"]): str(row[text]) for row in table.to_pylist()}

    def _refuse_missing_files(self) -> None:
        wanted = {self._data(row) for row in self._episodes.values()}
        videos = [camera for camera in self.cameras if self._kinds[camera] == "video"]
        wanted |= {self._video(row, camera) for row in self._episodes.values() for camera in videos}
        missing = sorted(path for path in wanted if not (self.path / path).is_file())
        if missing:
            raise DatasetError(
                f"{self.path} lacks {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''} "
                f"({len(missing)} of {len(wanted)} files). Copy them from the source of the dataset."
            )

    def _data(self, row: Mapping[str, Any]) -> str:
        places = {name: int(_entry(row, f"data/{name}")) for name in ("chunk_index", "file_index")}
        return self._place(str(self._info["data_path"]), places)

    def _video(self, row: Mapping[str, Any], camera: str) -> str:
        names = ("chunk_index", "file_index")
        places: dict[str, int | str] = {n: int(_entry(row, f"videos/{camera}/{n}")) for n in names}
        return self._place(str(self._info["video_path"]), {**places, "video_key": camera})

    def _place(self, template: str, values: Mapping[str, int | str]) -> str:
        def fill(match: re.Match[str]) -> str:
            value = values.get(match[1])
            if value is None:
                raise DatasetError(f"{self.path}: path template {template!r} names {match[1]!r}.")
            return str(value).zfill(int(match[2] or 0)) if isinstance(value, int) else value

        place = _FIELD.sub(fill, template)
        if not (self.path / place).resolve().is_relative_to(self.path.resolve()):
            raise DatasetError(f"{self.path}: {place!r} lies outside the dataset; it is not read.")
        return place


def _read_info(path: Path) -> dict[str, Any]:
    file = path / "meta/info.json"
    if not file.is_file():
        raise DatasetError(f"{path} has no meta/info.json; it is no LeRobotDataset folder.")
    try:
        info: dict[str, Any] = json.loads(file.read_text())
        version = str(info["codebase_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"meta/info.json in {path} cannot be read: {error!r}.") from error
    if not version.startswith("v3."):
        raise DatasetError(
            f"{path} is a LeRobotDataset {version}; version 3 is read here. Convert it with "
            "`python -m lerobot.scripts.convert_dataset_v21_to_v30` of LeRobot."
            + _missing_in_v2(path, version)
        )
    missing = [key for key in ("fps", "features", "data_path") if key not in info]
    if missing:
        raise DatasetError(f"meta/info.json in {path} lacks {missing}.")
    if not (isinstance(info["fps"], int | float) and math.isfinite(info["fps"]) and info["fps"] > 0):
        raise DatasetError(f"meta/info.json in {path} has fps {info['fps']!r}; a positive number is needed.")
    return info


def _missing_in_v2(path: Path, version: str) -> str:
    if not version.startswith("v2.") or (path / "meta/episodes.jsonl").is_file():
        return ""
    return (
        " Copy meta/episodes.jsonl from its source first: it is missing, and without it no episode is found."
    )


def _feature(path: Path, key: str, spec: Mapping[str, Any]) -> Feature:
    shape = tuple(int(size) for size in spec["shape"])
    names = spec.get("names") or ()
    if isinstance(names, dict):  # older writers group the names, such as {"motors": [...]}
        names = [name for group in names.values() for name in (group if isinstance(group, list) else [group])]
    try:
        if spec["dtype"] in _CAMERA_TYPES:
            height, width, channels = shape if shape[-1] in {1, 3} else (shape[1], shape[2], shape[0])
            return Feature((height, width, channels), "uint8", names=("height", "width", "channel"))
        fits = len(names) == (shape[0] if len(shape) == 1 else len(shape))
        return Feature(shape, str(spec["dtype"]), names=tuple(names) if fits else ())
    except (ValueError, IndexError, TypeError) as error:
        raise DatasetError(f"meta/info.json in {path}: feature {key!r}: {error}") from error


def _read_table(path: Path, place: str) -> pa.Table:
    if not (path / place).is_file():
        raise DatasetError(f"{path} has no {place}. Copy it from the source of the dataset.")
    try:
        return pq.read_table(path / place)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{place} in {path} cannot be read, it may be cut short: {error}") from error


def _entry(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a number or text of the table
    for candidate in (name, name.replace("data/", "data_")):
        if row.get(candidate) is not None:
            return row[candidate]
    raise DatasetError(f"The episode table lacks {name!r}; it has {sorted(row)}.")


def _integers(values: NDArray[Any], name: str, id_: int) -> NDArray[np.int64]:
    whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise DatasetError(f"Episode {id_}: {name} holds {values[whole != values][:1]}, no whole number.")
    return whole
