"""Where each episode of a LeRobotDataset folder lies: version 3 keeps many in a file, version 2 one in each.

Everything in these files is another's word: paths must stay inside the dataset, and sizes must be possible,
before anything is opened by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from data.errors import DatasetError
from data.features import Feature
from data.lerobot_files import column_names, fill_template, json_lines, json_object, read_table, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SHAPE = "robot_rl.shape"
"""In a feature's `info`, the shape that an array had before it became a vector."""
INDEX_COLUMNS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
CAMERA_TYPES = ("video", "image")
_TEXT_TYPES = ("string", "language")
_EPISODE_TABLE = "meta/episodes/chunk-000/file-000.parquet"
_MOST_ELEMENTS = 1 << 26
_MOST_EPISODES = 1 << 24


@dataclass(frozen=True)
class Place:
    """Where one episode lies.

    Attributes:
        length: Its number of steps T.
        data: Its Parquet file, relative to the dataset.
        videos: By camera, the file and the time in it at which the episode starts, s.
    """

    length: int
    data: str
    videos: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Index:
    """What the files below ``meta`` say.

    Attributes:
        version: Such as ``"v3.0"``.
        fps: Frames per second.
        robot: Type of the robot; may be empty.
        kinds: Declared type of every column, ``video``, ``image`` and ``string`` included.
        features: Every column but indices and texts, in the order of the dataset.
        places: By episode number.
        tasks: Text of each task number.
    """

    version: str
    fps: float
    robot: str
    kinds: Mapping[str, str]
    features: Mapping[str, Feature]
    places: Mapping[int, Place]
    tasks: Mapping[int, str]


def read_index(path: Path) -> Index:
    """Read what a folder says of itself, and check that its files are there.

    Raises:
        DatasetError: It is no LeRobotDataset, of a version that is not read, or a file is missing, broken or
            leads outside; names the file.
    """
    info = _read_info(path)
    version = str(info["codebase_version"])
    kinds = {key: str(spec["dtype"]) for key, spec in info["features"].items()}
    features = {
        key: _feature(path, key, spec)
        for key, spec in info["features"].items()
        if key not in INDEX_COLUMNS and kinds[key] not in _TEXT_TYPES
    }
    videos = [key for key, kind in kinds.items() if kind == "video"]
    if videos and not info.get("video_path"):
        raise DatasetError(f"meta/info.json in {path} declares the videos {videos}, but no video_path.")
    made = _places_v3 if version.startswith("v3.") else _places_v2
    places = dict(made(path, info, videos))
    tasks = dict(_tasks_v3(path) if version.startswith("v3.") else _tasks_v2(path))
    _refuse_missing_files(path, places.values())
    robot = str(info.get("robot_type") or "")
    return Index(version, float(info["fps"]), robot, kinds, features, places, tasks)


def _read_info(path: Path) -> dict[str, Any]:
    if not (path / "meta/info.json").is_file():
        raise DatasetError(f"{path} has no meta/info.json; it is no LeRobotDataset folder.")
    info = json_object(path, "meta/info.json", read_text(path, "meta/info.json"))
    missing = [key for key in ("codebase_version", "fps", "features", "data_path") if key not in info]
    if missing:
        raise DatasetError(f"meta/info.json in {path} lacks {missing}.")
    version = str(info["codebase_version"])
    if not version.startswith(("v2.", "v3.")):
        raise DatasetError(
            f"{path} is a LeRobotDataset {version}; versions 2 and 3 are read here. Convert an older one "
            "with the script of the LeRobot release that followed it; for a newer one update robot-rl."
        )
    fps = info["fps"]
    if isinstance(fps, bool) or not (isinstance(fps, int | float) and math.isfinite(fps) and fps > 0):
        raise DatasetError(f"meta/info.json in {path} has fps {fps!r}; a positive number is needed.")
    specs = info["features"]
    if not isinstance(specs, dict) or not all(isinstance(s, dict) and "dtype" in s for s in specs.values()):
        raise DatasetError(f"meta/info.json in {path} has no features with a dtype each, but {specs!r:.200}.")
    return info


def _feature(path: Path, key: str, spec: Mapping[str, Any]) -> Feature:
    names = spec.get("names") or ()
    if isinstance(names, dict):  # older writers group the names, such as {"motors": [...]}
        names = [name for group in names.values() for name in (group if isinstance(group, list) else [group])]
    try:
        shape = tuple(int(size) for size in spec["shape"])
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ValueError(f"shape {shape} has more than {_MOST_ELEMENTS} elements")  # noqa: TRY301 - told below with the file
        if spec["dtype"] in CAMERA_TYPES:
            height, width, channels = shape if shape[-1] in {1, 3} else (shape[1], shape[2], shape[0])
            return Feature((height, width, channels), "uint8", names=("height", "width", "channel"))
        kept = tuple(int(size) for size in (spec.get("info") or {}).get(SHAPE, ()))
        shape = kept if kept and math.prod(kept) == math.prod(shape) else shape
        fits = len(names) == (shape[0] if len(shape) == 1 else len(shape))
        return Feature(shape, str(spec["dtype"]), names=tuple(names) if fits else ())
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, AttributeError) as error:
        raise DatasetError(f"meta/info.json in {path}: feature {key!r}: {error}") from error


def _places_v3(path: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[tuple[int, Place]]:
    files = sorted((path / "meta/episodes").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DatasetError(
            f"{path} has no {_EPISODE_TABLE}, the table that says where each episode lies. "
            "Copy it from the source of the dataset, or record again: LeRobot writes it in finalize()."
        )
    for file in files:
        place = file.relative_to(path).as_posix()
        wanted = [name for name in column_names(path, place) if not name.startswith("stats/")]
        for row in read_table(path, place, wanted).to_pylist():
            data = {name: _number(path, row, f"data/{name}") for name in ("chunk_index", "file_index")}
            found = {camera: _video_v3(path, info, row, camera) for camera in videos}
            data_path = fill_template(path, info["data_path"], data)
            yield _number(path, row, "episode_index"), Place(_length(path, row), data_path, found)


def _video_v3(path: Path, info: Mapping[str, Any], row: Mapping[str, Any], camera: str) -> tuple[str, float]:
    names = ("chunk_index", "file_index")
    values: dict[str, int | str] = {name: _number(path, row, f"videos/{camera}/{name}") for name in names}
    start = _entry(path, row, f"videos/{camera}/from_timestamp")
    if not isinstance(start, int | float) or not math.isfinite(start) or start < 0:
        raise DatasetError(f"The episode table in {path} has from_timestamp {start!r} for {camera}.")
    return fill_template(path, info["video_path"], {**values, "video_key": camera}), float(start)


def _places_v2(path: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[tuple[int, Place]]:
    per_chunk = max(1, _number(path, {"chunks_size": 1000, **info}, "chunks_size"))
    for row in json_lines(path, "meta/episodes.jsonl", "without it no episode is found"):
        number = _number(path, row, "episode_index")
        values: dict[str, int | str] = {"episode_chunk": number // per_chunk, "episode_index": number}
        found = {
            camera: (fill_template(path, info["video_path"], {**values, "video_key": camera}), 0.0)
            for camera in videos
        }
        yield number, Place(_length(path, row), fill_template(path, info["data_path"], values), found)


def _tasks_v3(path: Path) -> Iterator[tuple[int, str]]:
    table = read_table(path, "meta/tasks.parquet")
    texts = [name for name in table.schema.names if name != "task_index"]
    if "task_index" not in table.schema.names or not texts:
        raise DatasetError(f"meta/tasks.parquet in {path} has {table.schema.names}, no task and task_index.")
    text = "task" if "task" in texts else texts[0]
    for row in table.to_pylist():
        yield _number(path, row, "task_index"), str(row[text])


def _tasks_v2(path: Path) -> Iterator[tuple[int, str]]:
    for row in json_lines(path, "meta/tasks.jsonl", "it holds the texts of the tasks"):
        yield _number(path, row, "task_index"), str(_entry(path, row, "task"))


def _refuse_missing_files(path: Path, places: Iterable[Place]) -> None:
    wanted = {place.data for place in places} | {file for p in places for file, _ in p.videos.values()}
    missing = sorted(file for file in wanted if not (path / file).is_file())
    if missing:
        raise DatasetError(
            f"{path} lacks {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''} "
            f"({len(missing)} of {len(wanted)} files). Copy them from the source of the dataset."
        )


def _entry(path: Path, row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a number or text of a table
    for candidate in (name, name.replace("data/", "data_")):
        if row.get(candidate) is not None:
            return row[candidate]
    raise DatasetError(f"A table below meta in {path} lacks {name!r}; it has {sorted(row)}.")


def _number(path: Path, row: Mapping[str, Any], name: str) -> int:
    value = _entry(path, row, name)
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = -1
    if whole != value or not 0 <= whole < _MOST_EPISODES:
        raise DatasetError(f"A table below meta in {path} has {name} {value!r}, no small whole number.")
    return whole


def _length(path: Path, row: Mapping[str, Any]) -> int:
    length = _number(path, row, "length")
    if not length:
        raise DatasetError(f"{path} announces episode {row.get('episode_index')} with no steps.")
    return length
