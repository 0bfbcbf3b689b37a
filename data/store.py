"""A folder of episodes: each a Zarr 3 group that is there whole or not at all, checked whenever it is read.

There is no index file: the folders are the index. An episode is written to a hidden folder and renamed when
it is whole, so a process that dies leaves the others as they were and, of its own, a recording that says so.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.builder import EpisodeBuilder
from data.episode_folder import GROUP_FILE, FolderWriter, read_episode, read_facts
from data.errors import DamagedEpisodeError, LockedStoreError, StoreError
from data.features import Features, differences, from_array, from_json, to_json
from data.layout import FACTS, episode_arrays
from data.lock import FileLock
from data.manifest import atomic_write_bytes
from data.recorder import Recorder, Recording
from data.records import Episode, check_id, plain
from data.steps import Outcome
from data.zarr_files import ZarrFileError, group_attributes, group_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)
_RECORDING = ".recording"
_FORMAT = "robot-rl episodes"
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

    Raises:
        StoreError: The folder holds something else, or episodes with other features.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        features: Features | None = None,
        action_spec: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._given: dict[str, Any] = {
            "features": None if features is None else to_json(features),
            "action_spec": None if action_spec is None else plain(dict(action_spec)),
        }
        self._lock = FileLock(self.path / GROUP_FILE)
        if self.exists:
            self._compare(self._root())

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return (self.path / GROUP_FILE).is_file()

    @property
    def features(self) -> Features:
        """What observations contain: as declared, or else as found in the first episode."""
        declared = self._declared("features")
        if declared is not None:
            return from_json(declared)
        if not len(self):
            return {}
        return {key: from_array(rows[0]) for key, rows in self.read(self.ids()[0]).observations.items()}

    @property
    def action_spec(self) -> dict[str, Any] | None:
        """What actions mean, for `ActionSpec.from_json`; None where it was not declared."""
        declared: dict[str, Any] | None = self._declared("action_spec")
        return declared

    def ids(self) -> list[str]:
        """Names of the episodes, sorted.

        Raises:
            StoreError: There is no store here.
        """
        self._root()
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

    def read(self, id_: str) -> Episode:
        """Read one episode, every byte checked.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: A file of it is missing or was changed.
        """
        return read_episode(self._folder(id_))

    def summary(self, id_: str) -> Summary:
        """What is known of one episode without reading its arrays.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: Its attributes are missing or were changed.
        """
        facts = read_facts(self._folder(id_))
        return Summary(id_, facts["steps"], Outcome(facts["outcome"]), facts["task"], facts["seed"])

    def damages(self) -> dict[str, str]:
        """What is wrong with each damaged episode; empty when all can be read."""
        found = {}
        for id_ in self.ids():
            try:
                self.read(id_)
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
            self._refuse_misfit(episode)
            folder = self._new_recording(episode.id)
            try:
                writer = FolderWriter(folder / "episode")
                for path, rows in arrays.items():
                    writer.array(path, [rows], len(rows))
                facts = {name: getattr(episode, name) for name in FACTS}
                writer.finish({**facts, **self._context(), "steps": len(episode)})
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
            return Recorder(builder, folder, flush_every, self._commit, lock.release)
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

        Its metadata says ``"recovered": true``; its last step is neither terminated nor truncated unless it
        was.

        Raises:
            KeyError: There is no such recording.
            StoreError: No step of it was flushed: discard it.
            LockedStoreError: It is still being recorded.
        """
        with self._writing(id_):
            recording = Recording.read(self._recording(id_))
            if not recording.steps:
                raise StoreError(f"Recording {id_} holds no whole step; discard it.")
            metadata = {**recording.facts["metadata"], "recovered": True}
            found = Recording(
                recording.folder,
                {**recording.facts, "metadata": metadata},
                recording.segments,
                recording.steps,
            )
            self._commit(found, Outcome.UNKNOWN)
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
            hidden = self.path / f".removed-{id_}"
            shutil.rmtree(hidden, ignore_errors=True)
            self._folder(id_).rename(hidden)
            shutil.rmtree(hidden)

    def _commit(self, recording: Recording, outcome: Outcome) -> None:
        id_ = str(recording.facts["id"])
        target = recording.folder / "episode"
        shutil.rmtree(target, ignore_errors=True)
        try:
            recording.write_episode(target, {**recording.facts, "outcome": outcome, **self._context()})
            self._publish(recording.folder, id_)
        except OSError as error:
            raise _unwritable(id_, error) from error

    def _publish(self, folder: Path, id_: str) -> None:
        (folder / "episode").rename(self.path / id_)
        shutil.rmtree(folder)
        if not any((self.path / _RECORDING).iterdir()):
            (self.path / _RECORDING).rmdir()

    def _writing(self, id_: str) -> FileLock:
        check_id(id_)
        try:
            self._create()
            if self._lock.acquire(_WAIT_S if not self._recording_ids() else 0.0):
                return self._lock
        except OSError as error:
            raise _unwritable(id_, error) from error
        raise LockedStoreError(
            f"Episode {id_} cannot be written: another writer holds {self.path} and records "
            f"{self._recording_ids()}. Wait for it, stop it, or write to another folder and merge."
        )

    def _create(self) -> None:
        if self.exists:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        if any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise StoreError(f"{self.path} holds other files and no episodes; choose an empty or new folder.")
        atomic_write_bytes(
            self.path / GROUP_FILE, group_bytes({"format": _FORMAT, "version": 1, **self._given})
        )

    def _new_recording(self, id_: str) -> Path:
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

    def _root(self) -> dict[str, Any]:
        try:
            root = group_attributes((self.path / GROUP_FILE).read_bytes())
        except OSError:
            raise StoreError(
                f"There is no episode store at {self.path}; check the path, or collect episodes first."
            ) from None
        except ZarrFileError as error:
            raise StoreError(f"{self.path} is no episode store: {error}.") from error
        if root.get("format") != _FORMAT:
            raise StoreError(f"{self.path} is a Zarr group but no episode store.")
        return root

    def _declared(self, what: str) -> Any:  # noqa: ANN401 - JSON
        stored = self._root().get(what) if self.exists else None
        return self._given[what] if stored is None else stored

    def _context(self) -> dict[str, Any]:
        return {what: self._declared(what) for what in self._given}

    def _compare(self, root: Mapping[str, Any]) -> None:
        given, stored = self._given["features"], root.get("features")
        if given is not None and stored is not None:
            lines = differences(
                from_json(given), from_json(stored), expected_by="the new episodes", found_in="the store"
            )
            lines += [f"{key!r} is new." for key in stored.keys() - given.keys()]
            if lines:
                raise StoreError(f"{self.path} holds episodes with other features: " + " ".join(lines))
        given, stored = self._given["action_spec"], root.get("action_spec")
        if given is not None and stored is not None and given != stored:
            raise StoreError(f"{self.path} holds episodes with another action: {stored}, not {given}.")

    def _refuse_misfit(self, episode: Episode) -> None:
        declared = self._declared("features")
        if declared is None:
            return
        found = {key: from_array(rows[0]) for key, rows in episode.observations.items()}
        lines = differences(from_json(declared), found, expected_by="the store", found_in="the episode")
        if lines:
            raise StoreError(f"Episode {episode.id} does not fit the store: " + " ".join(lines))


def _unwritable(id_: str, error: OSError) -> StoreError:
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(
        f"Episode {id_} cannot be written: {error.strerror or error}{where}. "
        "Make room or choose a folder that can be written; no other episode was touched."
    )
