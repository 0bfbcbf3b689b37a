"""Records an episode while it happens, so that a process that dies loses at most the last few steps.

Camera pictures go to a file per camera as they come. Every `flush_every` steps the other new rows go to a
file of their own, and a line of the journal says that everything up to it is whole. Finishing, or recovering
what a dead process left, makes these files the final arrays.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data.errors import StoreError
from data.features import to_json
from data.images import PictureCodec, is_picture
from data.layout import check_key, chunk_arrays, step_arrays, stream_arrays
from data.manifest import sha256_bytes, sync_folder
from data.picture_files import PictureWriter
from data.plain import plain
from data.recording import JOURNAL, Recording
from data.steps import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike

    from data.builder import EpisodeBuilder, Piece
    from data.events import Event
    from data.steps import Chunk, Step

_FLUSH_SAMPLES = 1000


class Recorder:
    """Takes the steps of one episode and keeps them on disk; made by `EpisodeStore.recorder`.

    Samples that repeat are kept and counted: ``metadata["repeated"]`` says how many pictures were equal to
    the one before, and how many samples of a stream had the time of the one before, by the path of the array.

    As a context manager it leaves the recording to be recovered when the block fails or does not finish it.

    Args:
        builder: Collects the steps between two flushes.
        folder: Existing folder of the recording.
        flush_every: Steps between two flushes; what a dying process loses at most.
        commit: Called by `finish` with the outcome, to turn the recording into an episode.
        close: Called once when nothing more is going to be written.
        pictures: How pictures are stored.
        durable: Whether a flush waits for the disk itself.
    """

    def __init__(
        self,
        builder: EpisodeBuilder,
        folder: Path,
        flush_every: int,
        commit: Callable[[Recording, Outcome], None],
        close: Callable[[], None],
        *,
        pictures: PictureCodec | None = None,
        durable: bool = False,
    ) -> None:
        if flush_every < 1:
            raise ValueError(f"flush_every is {flush_every}; at least 1 step is needed.")
        self._builder = builder
        self._folder = folder
        self._flush_every = flush_every
        self._commit = commit
        self._close = close
        self._codec = pictures or PictureCodec()
        self._durable = durable
        self._open = True
        self._flushed = self._segments = self._samples = self._others = 0
        self._pictures: dict[str, PictureWriter] = {}
        self._stamps: dict[str, float] = {}
        self._repeated: dict[str, int] = {}
        self._journal(plain({**builder.facts, "stream_features": to_json(builder.stream_features)}))

    @property
    def id(self) -> str:
        """Name of the episode."""
        return self._builder.id

    @property
    def metadata(self) -> dict[str, Any]:
        """Further facts; may be added to until `finish`."""
        return self._builder.metadata

    def __len__(self) -> int:
        """Number of steps so far."""
        return len(self._builder)

    def start(self, observation: Mapping[str, ArrayLike]) -> None:
        """Take the observation of the reset; see `EpisodeBuilder.start`."""
        self._needs_open()
        self._builder.start(
            {key: self._kept(f"observations/{check_key(key)}", observation[key]) for key in observation}
        )

    def append(
        self,
        step: Step,
        next_observation: Mapping[str, ArrayLike],
        extra: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Add one step; see `EpisodeBuilder.append`.

        Raises:
            StoreError: The steps cannot be written, or the recorder is closed.
        """
        self._needs_open()
        given = {
            key: self._kept(f"observations/{check_key(key)}", value)
            for key, value in next_observation.items()
        }
        further = {key: self._kept(f"extra/{check_key(key)}", value) for key, value in (extra or {}).items()}
        self._builder.append(step, given, further)
        if len(self._builder) - self._flushed >= self._flush_every:
            self.flush()

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; it is on disk after the next flush."""
        self._needs_open()
        self._builder.add_chunk(chunk)
        self._others += 1

    def stream(self, key: str, time: float, wall_time: float, value: ArrayLike) -> None:
        """Add one sample of a sensor that has a rate of its own; see `EpisodeBuilder.stream`.

        Raises:
            StoreError: It cannot be written, or the recorder is closed.
        """
        self._needs_open()
        path = f"streams/{check_key(key)}/values"
        seen = self._pictures[path].repeated if path in self._pictures else 0
        self._builder.stream(key, time, wall_time, self._kept(path, value))
        same_picture = path in self._pictures and self._pictures[path].repeated > seen
        if self._stamps.get(path) == time and not same_picture:
            self._repeated[path] = self._repeated.get(path, 0) + 1
        self._stamps[path] = time
        self._samples += 1
        if self._samples >= _FLUSH_SAMPLES:
            self.flush()

    def event(self, event: Event) -> None:
        """Add an event and put everything so far on disk, since an event may be the last thing that happens.

        Raises:
            StoreError: It cannot be written, or the recorder is closed.
        """
        self._needs_open()
        self._builder.event(event)
        self._others += 1
        self.flush()

    def flush(self) -> None:
        """Put everything so far on disk.

        Raises:
            StoreError: It cannot be written; the recording keeps what was flushed before.
        """
        self._needs_open()
        if len(self._builder) == self._flushed and not self._samples and not self._others:
            return
        piece = self._builder.take()
        content = _segment(piece)
        name = f"segment-{self._segments:06d}.npz"
        try:
            for writer in self._pictures.values() if self._durable else ():
                writer.sync()
            self._write(name, content)
            self._journal(self._entry(name, content, piece))
        except OSError as error:
            raise self._unwritable(error) from error
        self._segments += 1
        self._flushed = len(self._builder)
        self._samples = self._others = 0

    def finish(self, outcome: Outcome | str = Outcome.UNKNOWN) -> str:
        """Turn the recording into an episode of the store.

        Returns:
            Its id.

        Raises:
            ValueError: No step was taken.
            StoreError: It cannot be written; the recording stays and can be recovered.
        """
        self._needs_open()
        if not len(self._builder):
            raise ValueError(f"Episode {self.id} has no steps; nothing was recorded.")
        outcome = Outcome(outcome)
        self.flush()
        try:
            recording = Recording.read(self._folder)
            if recording.steps != len(self._builder):
                raise StoreError(
                    f"Episode {self.id}: {recording.steps} of {len(self._builder)} steps are whole on disk; "
                    "something else changed its files. Recover or discard it."
                )
            metadata = plain(self.metadata | self._repeats())
            facts = {**recording.facts, "metadata": metadata}
            self._commit(replace(recording, facts=facts), outcome)
        finally:
            self.close()
        return self.id

    def discard(self) -> None:
        """Throw the recording away, as when a person wants to record the episode again."""
        self._needs_open()
        shutil.rmtree(self._folder)
        self.close()

    def close(self) -> None:
        """Stop recording; an unfinished recording stays on disk."""
        if self._open:
            self._open = False
            for writer in self._pictures.values():
                writer.close()
            self._close()

    def __enter__(self) -> Self:
        """Start of the recording."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the steps so far and stop recording."""
        if self._open and kind is None:
            self.flush()
        self.close()

    def _all_kept(self, group: str, given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        return {key: self._kept(f"{group}/{check_key(key)}", value) for key, value in given.items()}

    def _kept(self, path: str, value: ArrayLike) -> ArrayLike:
        """What the builder gets: the value itself, or where a picture was put."""
        array = np.asarray(value)
        if path not in self._pictures and not is_picture(array):
            return array
        try:
            if path not in self._pictures:
                file = self._folder / f"pictures-{len(self._pictures):03d}"
                self._pictures[path] = PictureWriter(file, self._codec.fitting(array.shape), array.shape)
            return self._pictures[path].add(array)
        except ValueError as error:
            raise ValueError(f"Episode {self.id}, step {len(self)}: {path} {error}.") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _entry(self, name: str, content: bytes, piece: Piece) -> dict[str, Any]:
        places = {path: writer.place() for path, writer in self._pictures.items()}
        return {
            "segment": name,
            "sha256": sha256_bytes(content),
            "steps": len(self._builder),
            "metadata": plain(self.metadata | self._repeats()),
            "events": [event.to_json() for event in piece.events],
            "pictures": {path: place for path, (place, _) in places.items()},
            "sizes": {place["file"]: size for place, size in places.values()},
        }

    def _repeats(self) -> dict[str, Any]:
        counts = dict(self._repeated)
        for path, writer in self._pictures.items():
            counts[path] = counts.get(path, 0) + writer.repeated
        counts = {path: count for path, count in counts.items() if count}
        return {"repeated": counts} if counts else {}

    def _needs_open(self) -> None:
        if not self._open:
            raise StoreError(f"The recorder of episode {self.id} is closed; start another one.")

    def _unwritable(self, error: OSError) -> StoreError:
        self.close()
        return StoreError(
            f"Episode {self.id}: what came from step {self._flushed} on cannot be written "
            f"({error.strerror}). Everything before is safe: make room, then recover or discard it."
        )

    def _write(self, name: str, content: bytes) -> None:
        with (self._folder / name).open("xb") as file:
            file.write(content)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())

    def _journal(self, entry: Mapping[str, Any]) -> None:
        with (self._folder / JOURNAL).open("a") as journal:
            journal.write(json.dumps(entry) + "\n")
            if self._durable:
                journal.flush()
                os.fsync(journal.fileno())
                sync_folder(self._folder)


def _segment(piece: Piece) -> bytes:
    arrays = {f"observations/{key}": rows for key, rows in piece.observations.items()}
    if piece.steps:
        arrays |= step_arrays(piece.columns)
    arrays |= {f"extra/{key}": rows for key, rows in piece.extra.items()}
    arrays |= chunk_arrays(piece.chunks) | stream_arrays(piece.streams)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
