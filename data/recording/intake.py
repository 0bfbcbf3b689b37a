"""Recordings of a store that are not finished, and who may write to it."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from data.episode_folder import GROUP_FILE, check_pictures, read_episode
from data.errors import LockedStoreError, StoreError
from data.lock import FileLock
from data.manifest import make_folder, sync_folder
from data.recording.unfinished import JOURNAL, Recording
from data.steps import check_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from data.steps import Outcome
    from data.store_root import StoreRoot

_RECORDING = ".recording"
_REMOVED = ".removed-"
_WAIT_S = 5.0
_GLANCE_S = 0.5
"""For a lock that somebody only looks at; whoever records keeps it for much longer."""


@dataclass(frozen=True)
class Partial:
    """A recording that was not finished.

    Attributes:
        id: Name of the episode.
        steps: Steps that can be recovered.
        active: Whether a process is still recording it.
        when: Of its last flush, s since 1970-01-01 UTC.
        because: Why there is no more of it.
    """

    id: str
    steps: int
    active: bool
    when: float = field(default=math.nan, compare=False)
    because: str = field(default="", compare=False)


class Intake:
    """The way into a store: recordings below ``.recording``, one writer at a time, and the commit.

    Args:
        path: Folder of the store.
        root: What it says of its episodes.
        finished: Whether there is an episode of an id.
        durable: Whether a commit waits for the disk itself.
    """

    def __init__(
        self, path: Path, root: StoreRoot, finished: Callable[[str], bool], *, durable: bool
    ) -> None:
        self._path = path
        self._folder = path / _RECORDING
        self._root = root
        self._finished = finished
        self._durable = durable
        self._lock = FileLock(path / GROUP_FILE)
        self._recorded: set[str] = set()

    def ids(self) -> list[str]:
        """Names of all recordings, sorted, also of those whose writer died after the commit."""
        try:
            return sorted(entry.name for entry in self._folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def partials(self) -> list[Partial]:
        """Recordings that were not finished, sorted by id."""
        ids = [id_ for id_ in self.ids() if (self._folder / id_).is_dir() and not self._settled(id_)]
        if not ids:
            return []
        active = self._lock.held or self._lock.taken()
        found = [_partial(self._folder / id_, active=active) for id_ in ids]
        return [partial for partial in found if partial is not None]

    def folder(self, id_: str) -> Path:
        """Folder of a recording that was not finished.

        Raises:
            KeyError: There is none.
            LockedStoreError: This very program is recording it.
        """
        if id_ in self._recorded:
            raise _still_recorded(id_)
        folder = self._folder / id_
        if not folder.is_dir() or self._settled(id_):
            raise KeyError(f"No unfinished recording {id_!r} in {self._path}; there are {self.ids()}.")
        return folder

    def writing(self, id_: str) -> FileLock:
        """Lock the store, which is made where there is none, for one episode.

        Raises:
            StoreError: It cannot be written.
            LockedStoreError: Another process keeps writing to it.
        """
        check_id(id_)
        try:
            self._root.create(durable=self._durable)
            if self._lock.acquire(_GLANCE_S if self.ids() else _WAIT_S):
                for left in self._path.glob(f"{_REMOVED}*"):  # whoever removed it died meanwhile
                    shutil.rmtree(left, ignore_errors=True)
                return self._lock
        except OSError as error:
            raise unwritable(id_, error) from error
        raise LockedStoreError(
            f"Episode {id_} cannot be written: another writer holds {self._path} and records "
            f"{self.ids()}. Wait for it, stop it, or write to another folder and merge."
        )

    def new(self, id_: str) -> Path:
        """Make the folder of a recording.

        Raises:
            StoreError: There is such an episode, or an unfinished recording of it.
            LockedStoreError: This very program is recording it.
        """
        if id_ in self._recorded:
            raise _still_recorded(id_)
        for left in self.ids():
            if self._settled(left):  # its writer died after the commit
                shutil.rmtree(self._folder / left)
        self.refuse_existing(id_)
        if os.path.lexists(self._path / id_):
            raise StoreError(
                f"Episode {id_} cannot be put into {self._path}, which holds a file of that name."
            )
        folder = self._folder / id_
        steps = Recording.read(folder).steps
        if steps:
            raise StoreError(
                f"An unfinished recording of episode {id_} holds {steps} steps; recover or discard it first."
            )
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder, durable=self._durable)
        return folder

    def refuse_existing(self, id_: str) -> None:
        """Refuse to make a second episode of an id.

        Raises:
            StoreError: There is one.
        """
        if self._finished(id_):
            also = " An unfinished recording of it stays." if os.path.lexists(self._folder / id_) else ""
            raise StoreError(
                f"Episode {id_} exists already in {self._path}; choose another id or remove it.{also}"
            )

    def _settled(self, id_: str) -> bool:
        """Whether a recording became an episode; one of its id that came from elsewhere says nothing."""
        folder = self._folder / id_
        published = target(folder).parent.is_dir() and not target(folder).is_dir()
        return self._finished(id_) and (published or not (folder / JOURNAL).exists())

    def begin(self, id_: str) -> Path:
        """Make the folder of a recording that lasts; `end` it. Raises what `new` does."""
        folder = self.new(id_)
        self._recorded.add(id_)
        return folder

    def end(self, id_: str) -> None:
        """Say that nothing more of a recording is going to be written, and unlock the store."""
        self._recorded.discard(id_)
        self._lock.release()

    def commit(self, recording: Recording, outcome: Outcome, *, read_back: bool = False) -> None:
        """Make an episode of a recording.

        Raises:
            StoreError: It cannot be written, or not be read; the recording stays.
        """
        id_ = str(recording.facts["id"])
        folder = target(recording.folder)
        shutil.rmtree(folder.parent, ignore_errors=True)
        try:
            facts = {**recording.facts, "outcome": outcome, **self._root.context()}
            try:
                recording.write_episode(folder, facts, durable=self._durable)
                if read_back:
                    _read_back(folder)
            except (StoreError, ValueError, LookupError) as error:
                shutil.rmtree(folder.parent, ignore_errors=True)
                raise StoreError(
                    f"Recording {id_} stays as it was: the episode made of it cannot be read. {error}"
                ) from error
            self.publish(recording.folder)
        except OSError as error:
            raise unwritable(id_, error) from error

    def remove(self, folder: Path) -> None:
        """Remove an episode, which is gone at once.

        Raises:
            OSError: The folders cannot be written.
        """
        hidden = self._path / f"{_REMOVED}{folder.name}"
        folder.rename(hidden)
        if self._durable:
            sync_folder(self._path)
        shutil.rmtree(hidden)

    def publish(self, folder: Path) -> None:
        """Put the whole episode of a recording's folder among the others, and remove what is left of it.

        Raises:
            OSError: The folders cannot be written.
        """
        target(folder).rename(self._path / folder.name)
        if self._durable:
            sync_folder(self._path)
        (folder / JOURNAL).unlink(missing_ok=True)  # first, or what is left would look unfinished
        shutil.rmtree(folder)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


def target(folder: Path) -> Path:
    """Where in the folder of a recording its episode is made, under the name that it keeps."""
    return folder / "episode" / folder.name


def _still_recorded(id_: str) -> LockedStoreError:
    return LockedStoreError(
        f"Episode {id_} is being recorded by this program; finish, discard or close that first."
    )


def _partial(folder: Path, *, active: bool) -> Partial | None:
    """What is known of a recording; None where it was finished or removed meanwhile."""
    try:
        found = Recording.read(folder)
        journal = folder / JOURNAL
        when = (journal if journal.is_file() else folder).stat().st_mtime
    except FileNotFoundError:
        return None
    because = (
        "it is being recorded" if active else found.because or "its process ended before it was finished"
    )
    return Partial(folder.name, found.steps, active, when, because)


def _read_back(folder: Path) -> None:
    read_episode(folder, pictures=False)
    check_pictures(folder)


def unwritable(id_: str, error: OSError) -> StoreError:
    """What to say when an episode cannot be written."""
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(
        f"Episode {id_} cannot be written: {error.strerror or error}{where}. "
        "Make room or choose a folder that can be written; no other episode was touched."
    )


def unremovable(id_: str, error: OSError) -> StoreError:
    """What to say when an episode or recording cannot be removed."""
    return StoreError(f"Episode {id_} cannot be removed: {error.strerror or error} ({error.filename}).")
