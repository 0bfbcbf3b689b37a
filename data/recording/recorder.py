"""Records an episode while it happens, so that a process that dies loses at most the last few steps.

Camera pictures go to a file per camera as they come. Every `flush_every` steps the other new rows go to a
file of their own, and a line of the journal says that everything up to it is whole. Finishing, or recovering
what a dead process left, makes these files the final arrays.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data.errors import StoreError
from data.features import to_json
from data.images import PictureCodec
from data.layout import check_key
from data.plain import plain
from data.recording.arriving import Declared, Repeats
from data.recording.files import RecordingFiles
from data.recording.unfinished import Recording
from data.steps import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike

    from data.builder import EpisodeBuilder
    from data.events import Event
    from data.features import Features
    from data.steps import Chunk, Step

logger = logging.getLogger(__name__)
_FLUSH_SAMPLES = 1000


class Recorder:
    """Takes the steps of one episode and keeps them on disk; made by `EpisodeStore.recorder`.

    Samples that repeat are kept, and counted in ``metadata["repeated"]``: see `Repeats`.

    As a context manager it puts all steps on disk, to be recovered, when the block does not finish it.

    Args:
        builder: Collects the steps between two flushes.
        folder: Existing folder of the recording.
        flush_every: Steps between two flushes; what a dying process loses at most.
        commit: Called by `finish` with the outcome, to turn the recording into an episode.
        close: Called once when nothing more is going to be written.
        pictures: How pictures are stored.
        durable: Whether a flush waits for the disk itself.
        features: What has to be among the observations and streams, and all that observations may hold; None
            when nothing is declared.
        action_size: How many numbers an action has; any when None.
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
        features: Features | None = None,
        action_size: int | None = None,
    ) -> None:
        if flush_every < 1:
            raise ValueError(f"flush_every is {flush_every}; at least 1 step is needed.")
        self._builder = builder
        self._flush_every = flush_every
        self._commit = commit
        self._close = close
        self._files = RecordingFiles(folder, pictures or PictureCodec(), durable=durable)
        self._declared = Declared(builder.id, features, action_size)
        self._repeats = Repeats(self._files)
        self._open = True
        self._owner = os.getpid()
        self._flushed = self._samples = self._others = 0
        self._files.journal(plain({**builder.facts, "stream_features": to_json(builder.stream_features)}))

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
        """Take the observation of the reset; see `EpisodeBuilder.start`.

        Raises:
            StoreError: A sensor that the store declares has another form, or one comes that it does not.
        """
        self._needs_open()
        for key, value in observation.items():
            self._declared.check_observation(key, value)
        self._builder.start(self._all_kept("observations", observation))

    def append(
        self,
        step: Step,
        next_observation: Mapping[str, ArrayLike],
        extra: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Add one step; see `EpisodeBuilder.append`.

        Raises:
            StoreError: The steps cannot be written, the recorder is closed, or the action has another length
                than the store declares.
        """
        self._needs_open()
        self._declared.check_action(step.action)
        given = self._all_kept("observations", next_observation)
        self._builder.append(step, given, self._all_kept("extra", extra or {}))
        if len(self) - self._flushed >= self._flush_every:
            self.flush()

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; it is on disk after the next flush.

        Raises:
            StoreError: The recorder is closed.
            ValueError: There is a plan of this id, or those before had other shapes; it is not kept then.
        """
        self._needs_open()
        try:
            for value in (chunk.actions, chunk.noise, chunk.candidates):
                if value is not None:
                    self._files.refuse_type(value)
        except ValueError as error:
            raise ValueError(f"Episode {self.id}, step {len(self)}: plan {chunk.id} {error}.") from error
        self._builder.add_chunk(chunk)
        self._others += 1

    def stream(self, key: str, time: float, wall_time: float, value: ArrayLike) -> None:
        """Add one sample of a sensor that has a rate of its own; see `EpisodeBuilder.stream`.

        Raises:
            StoreError: It cannot be written, or the recorder is closed.
            ValueError: It is not what `stream_features` says; it is not kept then.
        """
        self._needs_open()
        self._declared.check(key, value)
        self._builder.check_stream(key, np.asarray(value))
        path = f"streams/{check_key(key)}/values"
        with self._repeats.sample(path, time):
            self._builder.stream(key, time, wall_time, self._kept(path, value))
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
        if len(self) == self._flushed and not self._samples and not self._others:
            return
        facts = {"steps": len(self._builder), "metadata": plain(self.metadata | self._repeats.facts())}
        try:
            self._files.flush(self._builder.take(), facts)
        except OSError as error:
            raise self._unwritable(error) from error
        except BaseException:  # such as Ctrl-C: what was taken out is lost, and nothing may follow it
            self._end()
            raise
        self._flushed = len(self._builder)
        self._samples = self._others = 0

    def finish(self, outcome: Outcome | str = Outcome.UNKNOWN) -> str:
        """Turn the recording into an episode of the store.

        Returns:
            Its id.

        Raises:
            ValueError: No step was taken, or steps name plans that were not added; the recorder stays open.
            StoreError: It cannot be written, or a sensor that the store declares never came; the recording
                stays and can be recovered.
        """
        self._needs_open()
        if not len(self._builder):
            raise ValueError(f"Episode {self.id} has no steps; nothing was recorded.")
        self._builder.check_plans()
        outcome = Outcome(outcome)
        self.flush()
        self._declared.refuse_missing()
        try:
            recording = Recording.read(self._files.folder).holding(len(self))
            facts = {**recording.facts, "metadata": plain(self.metadata | self._repeats.facts())}
            self._commit(replace(recording, facts=facts), outcome)
        finally:
            self._end()
        return self.id

    def discard(self) -> None:
        """Throw the recording away, as when a person wants to record the episode again."""
        self._needs_open()
        shutil.rmtree(self._files.folder)
        self._end()

    def close(self) -> None:
        """Put all steps on disk and stop recording; an unfinished recording stays, to be recovered.

        Raises:
            StoreError: The last steps cannot be written; it is closed all the same.
        """
        try:
            if self._open and os.getpid() == self._owner:
                self.flush()
        finally:
            self._end()

    def _end(self) -> None:
        if self._open:
            self._open = False
            try:
                self._files.close()
            finally:
                self._close()

    def __enter__(self) -> Self:
        """Start of the recording."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the steps so far and stop recording."""
        try:
            self.close()
        except StoreError:
            if kind is None:
                raise
            logger.exception("Episode %s: its last steps are lost", self.id)

    def _all_kept(self, group: str, given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        return {key: self._kept(f"{group}/{check_key(key)}", value) for key, value in given.items()}

    def _kept(self, path: str, value: ArrayLike) -> ArrayLike:
        """What the builder gets: the value itself, or where a picture was put."""
        try:
            return self._files.keep(path, value)
        except ValueError as error:
            raise ValueError(f"Episode {self.id}, step {len(self)}: {path} {error}.") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _needs_open(self) -> None:
        if os.getpid() != self._owner:
            raise StoreError(
                f"Episode {self.id} is recorded by another process, of which this one is a fork."
            )
        if not self._open:
            raise StoreError(f"The recorder of episode {self.id} is closed; start another one.")

    def _unwritable(self, error: OSError) -> StoreError:
        self._end()
        return StoreError(
            f"Episode {self.id}: what came from step {self._flushed} on cannot be written "
            f"({error.strerror}). Everything before is safe: make room, then recover or discard it."
        )
