"""LeRobotDataset folders: versions 2 and 3 in, version 3 out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from data.config import from_dict
from data.errors import DatasetError
from data.features import from_json
from data.formats.lerobot_columns import NO_OBSERVATIONS, lerobot_features, rows
from data.formats.lerobot_import import ReadLeRobot, episode_of, notes
from data.formats.lerobot_write import CHECKSUMS, SIDECAR, WriteLeRobot, write_lerobot
from data.formats.registry import Format, Source
from data.formats.sidecar import Sidecar, checksum
from data.layout import episode_from
from data.lerobot import LeRobotFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.features import Features
    from data.lerobot import LeRobotEpisode
    from data.records import Episode


class LeRobot(Format):
    """A LeRobotDataset folder."""

    name: ClassVar[str] = "lerobot"
    summary: ClassVar[str] = "LeRobotDataset: versions 2 and 3 are read, version 3 is written"
    looked_for: ClassVar[str] = "a folder with meta/info.json"
    reading: ClassVar[type] = ReadLeRobot
    writing: ClassVar[type | None] = WriteLeRobot

    def matches(self, path: Path) -> bool:
        """Whether the folder has the file that every LeRobotDataset has."""
        return (path / "meta/info.json").is_file()

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a dataset; see `ReadLeRobot` for the options and `Format.read` for the errors."""
        chosen = from_dict(ReadLeRobot, options)
        folder = LeRobotFolder(path)
        if chosen.sidecar == "use" and (path / SIDECAR).is_file():
            return _with_sidecar(folder, Sidecar(path / SIDECAR), chosen)
        features = {
            key: feature
            for key, feature in folder.features.items()
            if key.startswith("observation.") and (chosen.cameras or key not in folder.cameras)
        }
        episodes = (episode_of(found, chosen) for found in folder)
        return Source(features, None, len(folder), episodes, notes(folder, chosen))

    def write(
        self,
        episodes: Iterable[Episode],
        features: Features,
        action_spec: Mapping[str, Any] | None,
        path: Path,
        **options: Any,  # noqa: ANN401 - as in Format
    ) -> tuple[str, ...]:
        """Write a dataset; see `WriteLeRobot` for the options and `Format.write` for the errors."""
        chosen = from_dict(WriteLeRobot, options)
        return write_lerobot(episodes, features, action_spec, path, chosen)


def _with_sidecar(folder: LeRobotFolder, sidecar: Sidecar, options: ReadLeRobot) -> Source:
    if sidecar.numbers != set(folder.ids):
        raise _stale(folder, f"it has episodes {sorted(sidecar.numbers)}, the dataset {folder.ids}")
    try:
        features = from_json(sidecar.header["features"])
        pictures, arrays = (tuple(sidecar.header["columns"][kind]) for kind in ("pictures", "arrays"))
        columns = {key: features[key].shape for key in (*pictures, *arrays)}
        lossy, action_spec = sidecar.header["lossy"], sidecar.header["action_spec"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _stale(folder, f"its header is not what it should be ({error!r})") from error
    said = []
    if pictures and lossy:
        said.append(f"Pictures of {', '.join(pictures)} were compressed with loss.")
    if pictures and not options.cameras:
        said.append(f"Pictures are not read: {', '.join(pictures)}.")
        features = {key: feature for key, feature in features.items() if key not in pictures}
        columns = {key: shape for key, shape in columns.items() if key in features}
    written = lerobot_features(features, NO_OBSERVATIONS, [], video=False)
    added = sorted(folder.features.keys() - written.keys() - {*folder.cameras, *arrays})
    if added:
        said.append(
            f"Columns {', '.join(added)} were added later and are not read; sidecar='ignore' reads them."
        )
    episodes = _joined(folder, sidecar, columns, features)
    return Source(features, action_spec, len(folder), episodes, tuple(said))


def _joined(
    folder: LeRobotFolder, sidecar: Sidecar, columns: Mapping[str, tuple[int, ...]], features: Features
) -> Iterator[Episode]:
    for found in folder:
        facts, arrays = sidecar.read(found.id)
        try:
            sums = dict(facts.pop(CHECKSUMS, {}))  # earlier releases wrote none
            for key, shape in columns.items():
                path = f"observations/{key}"
                arrays[path] = np.concatenate([_rows(found, key).reshape(-1, *shape), arrays[path]])
            wanted = {f"observations/{key}" for key in features}
            kept = {k: v for k, v in arrays.items() if k in wanted or not k.startswith("observations/")}
            episode = episode_from(facts, kept)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _stale(folder, f"episode {found.id}: {error}") from error
        _refuse_other(folder, found, episode)
        for key in sums.keys() & episode.observations.keys():
            if checksum(episode.observations[key][: len(found)]) != sums[key]:
                raise _stale(folder, f"episode {found.id} has another {key}")
        yield episode


def _rows(found: LeRobotEpisode, key: str) -> NDArray[Any]:
    return found.frames(key) if key in found.folder.cameras else found.columns[key]


def _refuse_other(folder: LeRobotFolder, found: LeRobotEpisode, episode: Episode) -> None:
    """Refuse to mix the facts of one episode with the rows of another, after somebody edited the dataset."""
    same = len(found) == len(episode) and found.task == episode.task
    if not (same and np.array_equal(found.columns["action"], episode.action.astype(np.float32))):
        raise _stale(folder, f"episode {found.id} has other steps, actions or another task")
    for key, wanted in rows(episode, NO_OBSERVATIONS).items():
        stored = found.columns.get(key)
        if stored is not None and not np.array_equal(stored.reshape(wanted.shape), wanted):
            raise _stale(folder, f"episode {found.id} has another {key}")


def _stale(folder: LeRobotFolder, why: str) -> DatasetError:
    return DatasetError(
        f"{folder.path}/{SIDECAR} does not belong to this dataset any more: {why}. The dataset was changed "
        "after it was written; read it without (sidecar='ignore') or remove that file."
    )
