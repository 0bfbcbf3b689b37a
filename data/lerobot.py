"""Reads a LeRobotDataset folder without LeRobot: columns from Parquet, camera frames from video or pictures.

Versions 2 and 3 are read. Version 3 keeps many episodes in one Parquet file and one video; the episode table
says where each lies. Frames are found by time stamp, never by counting, since a video may hold other episodes
before this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.errors import DatasetError
from data.features import Feature
from data.formats.pictures import picture_form
from data.lerobot_files import read_table
from data.lerobot_index import CAMERA_TYPES, Place, read_index
from data.statistics import FeatureStatistics, compute_statistics
from data.video import PictureError, decode_picture, read_frames
from data.windows import Trajectory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_NUMBER = Feature((), "float64")  # index columns are doubles in some datasets
_NEEDED = ("timestamp", "frame_index", "task_index", "episode_index")


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
    """A LeRobotDataset folder of version 2 or 3.

    Args:
        path: The folder that holds ``meta``, ``data`` and ``videos``.

    Raises:
        DatasetError: It is no such folder, has another version, or a file is missing or broken; names the
            file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._index = read_index(self.path)
        self.version = self._index.version
        self.fps = self._index.fps
        self.robot = self._index.robot
        self.features: Mapping[str, Feature] = self._index.features

    @property
    def cameras(self) -> tuple[str, ...]:
        """Keys of the cameras."""
        return tuple(key for key, kind in self._index.kinds.items() if kind in CAMERA_TYPES)

    @property
    def texts(self) -> tuple[str, ...]:
        """Keys of the columns of text, which are not read."""
        return tuple(key for key in self._index.kinds if key not in (*self.features, *_NEEDED, "index"))

    @property
    def ids(self) -> list[int]:
        """Numbers of the episodes, sorted."""
        return sorted(self._index.places)

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._index.places)

    def __iter__(self) -> Iterator[LeRobotEpisode]:
        """Every episode in order."""
        return (self.read(id_) for id_ in self.ids)

    def read(self, id_: int) -> LeRobotEpisode:
        """Read one episode; its frames are decoded only when asked for.

        Raises:
            KeyError: There is no such episode.
            DatasetError: Its rows are missing or do not fit their description.
        """
        if id_ not in self._index.places:
            raise KeyError(f"No episode {id_} in {self.path}; it has {self.ids}.")
        keys = [key for key in self.features if key not in self.cameras]
        table = self._rows(id_, self._index.places[id_], [*_NEEDED, *keys])
        order = _integers(self._column(table, "frame_index", _NUMBER), "frame_index", id_)
        if not np.array_equal(order, np.arange(len(order))):
            raise DatasetError(
                f"Episode {id_} of {self.path}: frame_index does not count from 0 in steps of 1."
            )
        numbers = _integers(self._column(table, "task_index", _NUMBER), "task_index", id_)
        unknown = sorted(set(numbers.tolist()) - self._index.tasks.keys())
        if unknown:
            raise DatasetError(
                f"Episode {id_} of {self.path} has tasks {unknown}, which its task table lacks."
            )
        tasks = tuple(self._index.tasks[number] for number in numbers.tolist())
        columns = {key: self._column(table, key, self.features[key]) for key in keys}
        times = self._column(table, "timestamp", _NUMBER)
        if not np.isfinite(times).all():
            raise DatasetError(f"Episode {id_} of {self.path}: timestamp is not finite; repair the dataset.")
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
        channels = self.features[camera].shape[2]
        if channels != 3:
            raise DatasetError(
                f"{camera} in {self.path} has pictures of {channels} channel, such as depth; "
                "only colour pictures are read. Leave cameras out (cameras=False) to read the rest."
            )
        place = self._index.places[episode.id]
        declared = self._size(camera)
        try:
            if self._index.kinds[camera] == "image":
                return self._pictures(episode.id, place, camera, steps, size)
            file, start = place.videos[camera]
            times = start + episode.timestamps[steps]
            return read_frames(
                self.path / file, times, tolerance_s=0.2 / self.fps, size=size, declared=declared
            )
        except PictureError as error:
            raise DatasetError(f"Episode {episode.id} of {self.path}, {camera}: {error}") from error

    def _pictures(
        self, id_: int, place: Place, camera: str, steps: NDArray[np.int64], size: tuple[int, int] | None
    ) -> NDArray[np.uint8]:
        declared = self._size(camera)
        table = self._rows(id_, place, [*_NEEDED, camera])
        if camera not in table.schema.names:
            raise DatasetError(f"{self.path} declares {camera!r}, but its data have {table.schema.names}.")
        entries = table[camera].take(pa.array(steps)).to_pylist()
        contents: list[Any] = [e.get("bytes") if isinstance(e, dict) else e for e in entries]
        missing = [
            int(s) for s, content in zip(steps, contents, strict=True) if not isinstance(content, bytes)
        ]
        if missing:
            raise DatasetError(
                f"Episode {id_} of {self.path} has no picture of {camera} inside its file at steps "
                f"{missing[:5]}; pictures beside it are not read."
            )
        for step, content in zip(steps, contents, strict=True):
            picture_form(content, f"Episode {id_} of {self.path}, {camera} at step {step}")
        pictures = [decode_picture(content, size, declared=declared) for content in contents]
        return np.stack(pictures) if pictures else np.zeros((0, *(size or declared), 3), np.uint8)

    def _size(self, camera: str) -> tuple[int, int]:
        height, width, _ = self.features[camera].shape
        return height, width

    def _rows(self, id_: int, place: Place, columns: Sequence[str]) -> pa.Table:
        file = place.data
        table = read_table(self.path, file, [*columns], filters=[("episode_index", "=", id_)])
        missing = [key for key in _NEEDED if key not in table.schema.names]
        if missing:
            raise DatasetError(f"{file} in {self.path} lacks the columns {missing}.")
        if len(table) != place.length:
            raise DatasetError(
                f"Episode {id_} of {self.path} has {place.length} steps in the episode table, but "
                f"{len(table)} in {file}."
            )
        return table

    def _column(self, table: pa.Table, key: str, feature: Feature) -> NDArray[Any]:
        if key not in table.schema.names:
            raise DatasetError(f"{self.path} declares {key!r}, but its data have {table.schema.names}.")
        column = table[key].combine_chunks()
        if isinstance(column, pa.ExtensionArray):  # LeRobot's arrays of two axes and more, once it is loaded
            column = column.storage
        if column.null_count:
            raise DatasetError(
                f"{key!r} in {self.path} has {column.null_count} empty entries; repair the dataset."
            )
        while isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
            column = column.flatten()
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise DatasetError(f"{key!r} in {self.path} holds {kind}, no plain numbers.")
        values = column.to_numpy(zero_copy_only=False)
        if values.size != len(table) * feature.size:
            raise DatasetError(
                f"{key!r} in {self.path} holds {values.size} numbers in {len(table)} rows; "
                f"shape {feature.shape} was declared."
            )
        return np.asarray(values.reshape(len(table), *feature.shape), feature.dtype)


def _integers(values: NDArray[Any], name: str, id_: int) -> NDArray[np.int64]:
    with np.errstate(invalid="ignore"):  # NaN becomes some number, which differs
        whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise DatasetError(f"Episode {id_}: {name} holds {values[whole != values][:1]}, no whole number.")
    return whole
