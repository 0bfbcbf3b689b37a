"""A folder of episodes: each a Zarr 3 group that is there whole or not at all, checked whenever it is read.

There is no index file: the folders are the index. An episode is written to a hidden folder and renamed when
it is whole, so a process that dies leaves the others as they were and, of its own, a recording that says so.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.builder import EpisodeBuilder
from data.episode_folder import GROUP_FILE, check_pictures, open_pictures, read_episode, read_facts
from data.errors import DamagedEpisodeError, LockedStoreError, StoreError
from data.features import Feature, Features, from_array, from_json
from data.folder_writer import FolderWriter
from data.images import PictureCodec, is_picture
from data.layout import episode_arrays, episode_facts
from data.lock import FileLock
from data.manifest import sync_folder
from data.recording.recorder import Recorder
from data.recording.unfinished import Recording
from data.records import Episode, check_id
from data.steps import Outcome
from data.store_root import StoreRoot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from data.picture_files import Pictures

logger = logging.getLogger(__name__)
_RECORDING = ".recording"
_REMOVED = ".removed-"
_WAIT_S = 5.0


@dataclass(frozen=True)
class Summary:
    """What a store knows of an episode without reading its arrays.

    Attributes:
        id: Name of the episode.
        steps: Its length T.
        outcome: How it ended.
        task: The task in words.
        seed: Seed of the reset.
    """

    id: str
    steps: int
    outcome: Outcome
    task: str
    seed: int | None


@dataclass(frozen=True)
class Partial:
    """A recording that was not finished.

    Attributes:
        id: Name of the episode.
        steps: Steps that can be recovered.
        active: Whether a process is still recording it.
    """

    id: str
    steps: int
    active: bool


class EpisodeStore:
    """Episodes in a folder, by id.

    The folder is created by the first write. One process writes at a time; any number may read.

    Args:
        path: The folder.
        features: What observations contain, with units and names; kept with the store and every episode.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it; kept likewise.
        pictures: How camera pictures of new episodes are stored; lossless unless said otherwise. Each episode
            says how its own are stored, so that one store may hold several kinds.
        durable: Whether a flush and a commit wait until the disk itself has everything, so that they also
            outlast a power failure. Without, they outlast the death of the process.

    Raises:
        StoreError: The folder holds something else, or episodes with other features.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        features: Features | None = None,
        action_spec: Mapping[str, Any] | None = None,
        pictures: PictureCodec | None = None,
        durable: bool = False,
    ) -> None:
        self.path = Path(path)
        self.picture_codec = pictures or PictureCodec()
        self.durable = durable
        self._root = StoreRoot(self.path, GROUP_FILE, features, action_spec)
        self._lock = FileLock(self.path / GROUP_FILE)

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return self._root.exists

    @property
    def features(self) -> Features:
        """What observations contain: as declared, or else as found in the first episode."""
        declared = self._root.declared("features")
        if declared is not None:
            return from_json(declared)
        if not len(self):
            return {}
        folder = self._folder(self.ids()[0])
        found = {
            key: from_array(rows[0])
            for key, rows in read_episode(folder, pictures=False).observations.items()
        }
        for path, known in read_facts(folder).get("pictures", {}).items():
            if path.startswith("observations/"):
                found[path.removeprefix("observations/")] = Feature(tuple(known["shape"][1:]), "uint8")
        return found

    @property
    def action_spec(self) -> dict[str, Any] | None:
        """What actions mean, for `ActionSpec.from_json`; None where it was not declared."""
        declared: dict[str, Any] | None = self._root.declared("action_spec")
        return declared

    def settings(self) -> dict[str, Any]:
        """Path and arguments, as JSON, with which another process opens the same store."""
        return {
            "path": str(self.path.absolute()),
            **self._root.given,
            "pictures": self.picture_codec.to_json(),
            "durable": self.durable,
        }

    def ids(self) -> list[str]:
        """Names of the episodes, sorted.

        Raises:
            StoreError: There is no store here.
        """
        self._root.read()
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
        return sorted(names)

    def __len__(self) -> int:
        """Number of episodes; 0 before the first write."""
        return len(self.ids()) if self.exists else 0

    def __contains__(self, id_: object) -> bool:
        """Whether there is an episode of this id."""
        return isinstance(id_, str) and bool(id_) and not id_.startswith(".") and (self.path / id_).is_dir()

    def __iter__(self) -> Iterator[Episode]:
        """Every readable episode in the order of `ids`; a damaged one is logged as an error and left out."""
        for id_ in self.ids():
            try:
                yield self.read(id_)
            except DamagedEpisodeError as error:
                logger.error("%s It is left out.", error)  # noqa: TRY400 - a traceback would bury what it says

    def read(self, id_: str, *, pictures: bool = True) -> Episode:
        """Read one episode, every byte checked.

        Args:
            id_: Name of the episode.
            pictures: Whether to unpack camera pictures; without, observations and streams lack them, and
                `pictures` reads them one by one.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: A file of it is missing or was changed.
            StoreError: Its pictures do not fit into memory.
        """
        return read_episode(self._folder(id_), pictures=pictures)

    def pictures(self, id_: str, key: str, *, stream: bool = False) -> Pictures:
        """Open the pictures of one camera, to read some of them without unpacking all.

        Args:
            id_: Name of the episode.
            key: Such as ``"observation.images.wrist"``.
            stream: Whether it is a stream, or else an observation of the steps.

        Returns:
            N pictures, read by row, each checked; close them after use.

        Raises:
            KeyError: There is no such episode, or no pictures of this key.
            DamagedEpisodeError: A file is missing or was changed.
        """
        path = f"streams/{key}/values" if stream else f"observations/{key}"
        return open_pictures(self._folder(id_), path)

    def summary(self, id_: str) -> Summary:
        """What is known of one episode without reading its arrays.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: Its attributes are missing or were changed.
        """
        facts = read_facts(self._folder(id_))
        return Summary(id_, facts["steps"], Outcome(facts["outcome"]), facts["task"], facts["seed"])

    def damages(self) -> dict[str, str]:
        """What is wrong with each damaged episode; empty when all can be read.

        Pictures are unpacked one at a time, so that no episode is too large for it.
        """
        found = {}
        for id_ in self.ids():
            try:
                self.read(id_, pictures=False)
                check_pictures(self._folder(id_))
            except StoreError as error:
                found[id_] = str(error)
        return found

    def write(self, episode: Episode) -> None:
        """Add a finished episode.

        Raises:
            StoreError: There is one of this id, it lacks a declared feature, or it cannot be written.
            LockedStoreError: Another process keeps writing to the store.
        """
        arrays = episode_arrays(episode)
        with self._writing(episode.id):
            self._root.refuse_misfit(episode)
            folder = self._new_recording(episode.id)
            try:
                writer = FolderWriter(folder / "episode", durable=self.durable)
                for path, rows in arrays.items():
                    if len(rows) and is_picture(rows[0]):
                        writer.encode(path, rows, self.picture_codec)
                    else:
                        writer.array(path, [rows], len(rows))
                writer.finish({**episode_facts(episode), **self._root.context(), "steps": len(episode)})
                self._publish(folder, episode.id)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise _unwritable(episode.id, error) from error

    def recorder(self, *, flush_every: int = 20, **facts: Any) -> Recorder:  # noqa: ANN401 - EpisodeBuilder's
        """Record an episode while it happens.

        Args:
            flush_every: Steps between two writes; what a dying process loses at most.
            **facts: Arguments of `EpisodeBuilder`: id, task, seed, robot, operator, ...

        Returns:
            A recorder; call `start`, `append` and `finish` on it. The store is locked until it is closed.

        Raises:
            StoreError: There is an episode or an unfinished recording of this id, or it cannot be written.
            LockedStoreError: Another process is writing to the store.
        """
        builder = EpisodeBuilder(**facts)
        lock = self._writing(builder.id)
        try:
            folder = self._new_recording(builder.id)
            return Recorder(
                builder,
                folder,
                flush_every,
                self._commit,
                lock.release,
                pictures=self.picture_codec,
                durable=self.durable,
                features=from_json(self._root.declared("features") or {}),
            )
        except OSError as error:
            lock.release()
            raise _unwritable(builder.id, error) from error
        except Exception:
            lock.release()
            raise

    def partials(self) -> list[Partial]:
        """Recordings that were not finished, sorted by id."""
        folder = self.path / _RECORDING
        if not folder.is_dir():
            return []
        active = self._lock.held or not self._lock.acquire()
        if not active:
            self._lock.release()
        ids = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name not in self)
        return [Partial(id_, Recording.read(folder / id_).steps, active) for id_ in ids]

    def recover(self, id_: str) -> Episode:
        """Turn what a dead process recorded into an episode of unknown outcome, up to the last flushed step.

        Every file and picture is checked before, and the recording is removed only after the new episode was
        read back. Its metadata says ``"recovered": true``; its last step is neither terminated nor truncated
        unless it was.

        Raises:
            KeyError: There is no such recording.
            StoreError: No step of it was flushed: discard it. Or what it became cannot be read; it stays.
            LockedStoreError: It is still being recorded.
        """
        with self._writing(id_):
            recording = Recording.read(self._recording(id_)).verified()
            if not recording.steps:
                raise StoreError(f"Recording {id_} holds no whole step; discard it.")
            metadata = {**recording.facts["metadata"], "recovered": True}
            recording = replace(recording, facts={**recording.facts, "metadata": metadata})
            self._commit(recording, Outcome.UNKNOWN, read_back=True)
        return self.read(id_)

    def discard(self, id_: str) -> None:
        """Remove what a dead process recorded.

        Raises:
            KeyError: There is no such recording.
            LockedStoreError: It is still being recorded.
        """
        with self._writing(id_):
            shutil.rmtree(self._recording(id_))

    def remove(self, id_: str) -> None:
        """Remove a whole episode; it is gone at once, also if the process dies here.

        Raises:
            KeyError: There is no such episode.
            LockedStoreError: Another process is writing to the store.
        """
        with self._writing(id_):
            hidden = self.path / f"{_REMOVED}{id_}"
            self._folder(id_).rename(hidden)
            shutil.rmtree(hidden)

    def _commit(self, recording: Recording, outcome: Outcome, *, read_back: bool = False) -> None:
        id_ = str(recording.facts["id"])
        target = recording.folder / "episode"
        shutil.rmtree(target, ignore_errors=True)
        try:
            facts = {**recording.facts, "outcome": outcome, **self._root.context()}
            try:
                recording.write_episode(target, facts, durable=self.durable)
                if read_back:
                    _read_back(target, recording.steps)
            except (StoreError, ValueError, LookupError) as error:
                shutil.rmtree(target, ignore_errors=True)
                raise StoreError(
                    f"Recording {id_} stays as it was: the episode made of it cannot be read. {error}"
                ) from error
            self._publish(recording.folder, id_)
        except OSError as error:
            raise _unwritable(id_, error) from error

    def _publish(self, folder: Path, id_: str) -> None:
        (folder / "episode").rename(self.path / id_)
        if self.durable:
            sync_folder(self.path)
        shutil.rmtree(folder)
        if not any((self.path / _RECORDING).iterdir()):
            (self.path / _RECORDING).rmdir()

    def _writing(self, id_: str) -> FileLock:
        check_id(id_)
        try:
            self._root.create()
            if self._lock.acquire(_WAIT_S if not self._recording_ids() else 0.0):
                for left in self.path.glob(f"{_REMOVED}*"):  # whoever removed it died before it was gone
                    shutil.rmtree(left, ignore_errors=True)
                return self._lock
        except OSError as error:
            raise _unwritable(id_, error) from error
        raise LockedStoreError(
            f"Episode {id_} cannot be written: another writer holds {self.path} and records "
            f"{self._recording_ids()}. Wait for it, stop it, or write to another folder and merge."
        )

    def _new_recording(self, id_: str) -> Path:
        for left in self._recording_ids():
            if left in self:  # its writer died after the commit
                shutil.rmtree(self.path / _RECORDING / left)
        if id_ in self:
            raise StoreError(f"Episode {id_} exists already in {self.path}; choose another id or remove it.")
        folder = self.path / _RECORDING / id_
        steps = Recording.read(folder).steps
        if steps:
            raise StoreError(
                f"An unfinished recording of episode {id_} holds {steps} steps; recover or discard it first."
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _recording(self, id_: str) -> Path:
        folder = self.path / _RECORDING / id_
        if not folder.is_dir() or id_ in self:
            raise KeyError(
                f"No unfinished recording {id_!r} in {self.path}; there are {self._recording_ids()}."
            )
        return folder

    def _recording_ids(self) -> list[str]:
        folder = self.path / _RECORDING
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def _folder(self, id_: str) -> Path:
        if id_ not in self:
            raise KeyError(f"No episode {id_!r} in {self.path}, which holds {len(self)}.")
        return self.path / check_id(id_)


def _read_back(folder: Path, steps: int) -> None:
    found = len(read_episode(folder, pictures=False))
    if found != steps:
        raise StoreError(f"Its journal says {steps} steps, its files hold {found}.")
    check_pictures(folder)


def _unwritable(id_: str, error: OSError) -> StoreError:
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(
        f"Episode {id_} cannot be written: {error.strerror or error}{where}. "
        "Make room or choose a folder that can be written; no other episode was touched."
    )
