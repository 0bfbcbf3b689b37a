"""Records an episode while it happens, so that a process that dies loses at most the last few steps.

Every `flush_every` steps the new rows go to a file of their own, and a line of the journal says that it is
whole. Finishing, or recovering what a dead process left, streams these files into the final arrays.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data.episode_folder import FolderWriter
from data.errors import StoreError
from data.features import to_json
from data.layout import check_key, chunk_arrays, step_arrays, stream_arrays
from data.manifest import sha256_bytes
from data.plain import plain
from data.steps import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from numpy.typing import ArrayLike, NDArray

    from data.builder import EpisodeBuilder, Piece
    from data.events import Event
    from data.steps import Chunk, Step

_JOURNAL = "journal.jsonl"


@dataclass(frozen=True)
class Recording:
    """What lies on disk of an episode that is not finished.

    Attributes:
        folder: Where.
        facts: What is known of it; empty when its writer died before the first step.
        segments: Files that were written whole and are unchanged, in order.
        steps: Steps in them.
    """

    folder: Path
    facts: Mapping[str, Any]
    segments: tuple[str, ...]
    steps: int

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """Read the journal up to the last file that is whole and unchanged."""
        try:
            lines = (folder / _JOURNAL).read_text().split("\n")[:-1]  # a line without its end was cut off
            facts, *entries = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return cls(folder, {}, (), 0)
        segments: list[str] = []
        steps = 0
        events: list[Any] = []
        for entry in entries:
            path = folder / str(entry["segment"])
            if not path.is_file() or sha256_bytes(path.read_bytes()) != entry["sha256"]:
                break
            segments.append(path.name)
            events += entry.get("events", [])
            steps = int(entry["steps"])
            facts = {**facts, "metadata": entry["metadata"], "events": events}
        return cls(folder, facts, tuple(segments), steps)

    def write_episode(self, target: Path, facts: Mapping[str, Any]) -> None:
        """Stream the segments into the final arrays of an episode in a new folder.

        Raises:
            OSError: The folder cannot be written, or the disk is full.
        """
        lengths: dict[str, int] = {}
        for name in self.segments:
            with np.load(self.folder / name, allow_pickle=False) as segment:
                for path in segment.files:
                    lengths[path] = lengths.get(path, 0) + len(segment[path])
        writer = FolderWriter(target)
        for path, length in lengths.items():
            writer.array(path, self._parts(path), length)
        writer.finish({**facts, "steps": self.steps})

    def _parts(self, path: str) -> Iterator[NDArray[Any]]:
        for name in self.segments:
            with np.load(self.folder / name, allow_pickle=False) as segment:
                if path in segment.files:
                    yield segment[path]


class Recorder:
    """Takes the steps of one episode and keeps them on disk; made by `EpisodeStore.recorder`.

    As a context manager it leaves the recording to be recovered when the block fails or does not finish it.

    Args:
        builder: Collects the steps between two flushes.
        folder: Existing folder of the recording.
        flush_every: Steps between two flushes; what a dying process loses at most.
        commit: Called by `finish` with the outcome, to turn the recording into an episode.
        close: Called once when nothing more is going to be written.
    """

    def __init__(
        self,
        builder: EpisodeBuilder,
        folder: Path,
        flush_every: int,
        commit: Callable[[Recording, Outcome], None],
        close: Callable[[], None],
    ) -> None:
        if flush_every < 1:
            raise ValueError(f"flush_every is {flush_every}; at least 1 step is needed.")
        self._builder = builder
        self._folder = folder
        self._flush_every = flush_every
        self._commit = commit
        self._close = close
        self._open = True
        self._flushed = 0
        self._segments = 0
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
        for key in observation:
            check_key(key)
        self._builder.start(observation)

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
        for key in extra or {}:
            check_key(key)
        self._builder.append(step, next_observation, extra)
        if len(self._builder) - self._flushed >= self._flush_every:
            self.flush()

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; it is on disk after the next flush."""
        self._needs_open()
        self._builder.add_chunk(chunk)

    def stream(self, key: str, time: float, wall_time: float, value: ArrayLike) -> None:
        """Add one sample of a sensor that has a rate of its own; see `EpisodeBuilder.stream`."""
        self._needs_open()
        check_key(key)
        self._builder.stream(key, time, wall_time, value)

    def event(self, event: Event) -> None:
        """Add an event; it is on disk after the next flush."""
        self._needs_open()
        self._builder.event(event)

    def flush(self) -> None:
        """Put all steps so far on disk.

        Raises:
            StoreError: They cannot be written; the recording keeps what was flushed before.
        """
        self._needs_open()
        if len(self._builder) == self._flushed:
            return
        piece = self._builder.take()
        content = _segment(piece)
        name = f"segment-{self._segments:06d}.npz"
        entry = {
            "segment": name,
            "sha256": sha256_bytes(content),
            "steps": len(self._builder),
            "metadata": plain(self.metadata),
            "events": [event.to_json() for event in piece.events],
        }
        try:
            (self._folder / name).write_bytes(content)
            self._journal(entry)
        except OSError as error:
            self.close()
            raise StoreError(
                f"Episode {self.id}: steps {self._flushed} to {len(self._builder) - 1} cannot be written "
                f"({error.strerror}). The steps before are safe: make room, then recover or discard it."
            ) from error
        self._segments += 1
        self._flushed = len(self._builder)

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
            self._commit(Recording.read(self._folder), outcome)
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

    def _needs_open(self) -> None:
        if not self._open:
            raise StoreError(f"The recorder of episode {self.id} is closed; start another one.")

    def _journal(self, entry: Mapping[str, Any]) -> None:
        with (self._folder / _JOURNAL).open("a") as journal:
            journal.write(json.dumps(entry) + "\n")


def _segment(piece: Piece) -> bytes:
    arrays = {f"observations/{key}": rows for key, rows in piece.observations.items()}
    arrays |= step_arrays(piece.columns)
    arrays |= {f"extra/{key}": rows for key, rows in piece.extra.items()}
    arrays |= chunk_arrays(piece.chunks) | stream_arrays(piece.streams)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
