"""A folder of episodes: each a Zarr 3 group that is there whole or not at all, checked whenever it is read.

There is no index file: the folders are the index. An episode is written to a hidden folder and renamed when
it is whole, so a process that dies leaves the others as they were and, of its own, a recording that says so.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.builder import EpisodeBuilder
from data.episode_folder import GROUP_FILE
from data.errors import StoreError
from data.features import Features, from_json
from data.folder_writer import FolderWriter
from data.images import PictureCodec, is_picture
from data.layout import episode_arrays, episode_facts
from data.recording.intake import Intake, Partial, target, unremovable, unwritable
from data.recording.recorder import Recorder
from data.recording.unfinished import Recording
from data.steps import Outcome
from data.store_reader import StoreReader, Summary
from data.store_root import StoreRoot, action_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.records import Episode

__all__ = ["EpisodeStore", "Partial", "Summary"]


class EpisodeStore(StoreReader):
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
        path = Path(path)
        super().__init__(path, StoreRoot(path, GROUP_FILE, features, action_spec))
        self.picture_codec = pictures or PictureCodec()
        self.durable = durable
        self._intake = Intake(self.path, self._root, self.__contains__, durable=durable)

    def settings(self) -> dict[str, Any]:
        """Path and arguments, as JSON, with which another process opens the same store."""
        return {
            "path": str(self.path.absolute()),
            **self._root.given,
            "pictures": self.picture_codec.to_json(),
            "durable": self.durable,
        }

    def write(self, episode: Episode) -> None:
        """Add a finished episode.

        Raises:
            StoreError: There is one of this id, it lacks a declared feature, or it cannot be written.
            LockedStoreError: Another process keeps writing to the store.
        """
        arrays = episode_arrays(episode)
        with self._intake.writing(episode.id):
            self._root.refuse_misfit(episode)
            try:
                folder = self._intake.new(episode.id)
            except OSError as error:
                raise unwritable(episode.id, error) from error
            try:
                writer = FolderWriter(target(folder), durable=self.durable)
                for path, rows in arrays.items():
                    if len(rows) and is_picture(rows[0]):
                        writer.encode(path, rows, self.picture_codec)
                    else:
                        writer.array(path, [rows], len(rows))
                writer.finish({**episode_facts(episode), **self._root.context(), "steps": len(episode)})
                self._intake.publish(folder)
            except OSError as error:
                raise unwritable(episode.id, error) from error
            finally:
                shutil.rmtree(folder, ignore_errors=True)

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
        lock = self._intake.writing(builder.id)
        try:
            declared = self._root.declared("features")
            return Recorder(
                builder,
                self._intake.begin(builder.id),
                flush_every,
                self._intake.commit,
                lambda: self._intake.end(builder.id),
                pictures=self.picture_codec,
                durable=self.durable,
                features=from_json(declared) if declared else None,
                action_size=action_size(self._root.declared("action_spec")),
            )
        except OSError as error:
            lock.release()
            raise unwritable(builder.id, error) from error
        except Exception:
            lock.release()
            raise

    def partials(self) -> list[Partial]:
        """Recordings that were not finished, sorted by id."""
        return self._intake.partials()

    def recover(self, id_: str) -> Episode:
        """Turn what a dead process recorded into an episode of unknown outcome, up to the last flushed step.

        Every file and picture is checked before, and the recording is removed only after the new episode was
        read back. Its metadata says ``"recovered": true``; its last step is neither terminated nor truncated
        unless it was.

        Raises:
            KeyError: There is no such recording.
            StoreError: No step of it was flushed: discard it. There is an episode of this id, or what it
                became cannot be read; it stays.
            LockedStoreError: It is still being recorded.
        """
        with self._intake.writing(id_):
            folder = self._intake.folder(id_)
            self._intake.refuse_existing(id_)
            recording = Recording.read(folder).verified()
            if not recording.steps:
                raise StoreError(f"Recording {id_} holds no whole step; discard it.")
            metadata = {**recording.facts["metadata"], "recovered": True}
            recording = replace(recording, facts={**recording.facts, "metadata": metadata})
            self._intake.commit(recording, Outcome.UNKNOWN, read_back=True)
        return self.read(id_)

    def discard(self, id_: str) -> None:
        """Remove what a dead process recorded.

        Raises:
            KeyError: There is no such recording.
            LockedStoreError: It is still being recorded.
            StoreError: It cannot be removed.
        """
        with self._intake.writing(id_):
            folder = self._intake.folder(id_)
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise unremovable(id_, error) from error

    def remove(self, id_: str) -> None:
        """Remove a whole episode; it is gone at once, also if the process dies here.

        Raises:
            KeyError: There is no such episode.
            LockedStoreError: Another process is writing to the store.
            StoreError: It cannot be removed.
        """
        with self._intake.writing(id_):
            folder = self._folder(id_)
            try:
                self._intake.remove(folder)
            except OSError as error:
                raise unremovable(id_, error) from error
