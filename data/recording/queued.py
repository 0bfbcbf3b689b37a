"""The end of a recording that a control loop talks to; `process` has the rest."""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from data.errors import StoreError
from data.events import Event, EventKind
from data.layout import check_key
from data.plain import plain
from data.recording.messages import chunk_parts, prefixed, step_parts
from data.steps import Outcome, SegmentKind, Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from numpy.typing import ArrayLike, NDArray

    from data.recording.process import RecordingProcess
    from data.steps import Chunk, Step

logger = logging.getLogger(__name__)
_SPARE = 0.125
_SMALL = 4096


class QueuedRecorder:
    """Takes the steps of one episode and queues them for the writer; the counterpart of `Recorder`.

    Nothing here waits except `finish`, `discard` and `close`. What does not fit into the queue:

    - A sample of a stream is lost and counted. Pictures leave an eighth of the queue to small samples, and
      these leave half of that to the steps, so that cameras do not crowd out what matters more.
    - A step, with its observation, is held back until the queue has room. When more steps come meanwhile
      only the newest is held, and the others are lost and counted. It is then recorded with the source
      `Source.PAUSED`, so that no transition is made across the gap, and an event says how many are missing.
    - Plans and events are held back, and never lost. A plan's first step, as the control loop counts, becomes
      the row that follows the steps before it that were recorded.

    Attributes:
        id: Name of the episode.
        metadata: Further facts; may be added to until `finish`.
        dropped: How many were lost, by ``"steps"`` or the stream's key.
    """

    def __init__(self, process: RecordingProcess, id_: str, metadata: Mapping[str, Any]) -> None:
        self.id = id_
        self.metadata = dict(metadata)
        self.dropped: dict[str, int] = {}
        self._process = process
        self._told = dict(metadata)
        self._late: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self._held: tuple[Step, dict[str, Any], dict[str, Any]] | None = None
        self._missing = 0
        self._moment = (time.monotonic(), time.time())
        self._steps = 0
        self._lost: list[int] = []
        self._open = True

    def __len__(self) -> int:
        """Number of steps so far, lost ones left out."""
        return self._steps

    @property
    def open(self) -> bool:
        """Whether it takes more."""
        return self._open

    def abandon(self) -> None:
        """Take nothing more, and tell the writer nothing."""
        self._open = False

    def start(self, observation: Mapping[str, ArrayLike]) -> None:
        """Take the observation of the reset; see `EpisodeBuilder.start`. Waits for room."""
        self._needs_open()
        self._process.push("start", {}, prefixed("observation", _checked(observation)))

    def append(
        self,
        step: Step,
        next_observation: Mapping[str, ArrayLike],
        extra: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Add one step; see `EpisodeBuilder.append`. Arrays are copied.

        Raises:
            StoreError: The writer failed at something before, such as a full disk, or is gone.
            ValueError: What was given before was not what an episode can hold.
        """
        self._needs_open()
        given, further = _checked(next_observation), _checked(extra or {})
        if math.isfinite(step.monotonic_time) and math.isfinite(step.wall_time):
            self._moment = (step.monotonic_time, step.wall_time)
        sent = self._caught_up() and self._offer_step(step, given, further)
        self._steps += 1
        if sent:
            return
        if self._held is not None:
            self._missing += 1
            self._steps -= 1
            self._lost.append(self._steps + len(self._lost) - 1)
            self._count("steps")
        self._held = (step, _copied(given), _copied(further))

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a plan; its first step is at most the number of steps that were given so far."""
        self._needs_open()
        facts, arrays = chunk_parts(chunk)
        self._offer_or_keep("chunk", facts, arrays)

    def stream(self, key: str, time: float, wall_time: float, value: ArrayLike) -> None:
        """Add one sample of a sensor that has a rate of its own; see `EpisodeBuilder.stream`.

        Raises:
            StoreError: The writer failed at something before, or is gone.
        """
        self._needs_open()
        facts = {"key": check_key(key), "time": float(time), "wall_time": float(wall_time)}
        spare = _SPARE if np.size(value) > _SMALL else _SPARE / 2
        if not self._process.offer("stream", facts, {"value": value}, spare=spare):
            self._count(key)

    def event(self, event: Event) -> None:
        """Add an event."""
        self._needs_open()
        self._offer_or_keep("event", event.to_json(), {})

    def finish(self, outcome: Outcome | str = Outcome.UNKNOWN, *, allow_dropped: bool = False) -> str:
        """Wait until everything is written, and turn the recording into an episode of the store.

        Args:
            outcome: How it ended.
            allow_dropped: Whether to keep the episode although the queue was too small for all of it; its
                metadata say ``"dropped"`` then.

        Returns:
            Its id.

        Raises:
            StoreError: The queue was too small and `allow_dropped` is not set: call it again with it, or
                `discard`. Or the episode cannot be written.
        """
        self._needs_open()
        outcome = Outcome(outcome)
        if self.dropped and not allow_dropped:
            raise StoreError(
                f"Episode {self.id}: the recording queue was full and {self.dropped} were not recorded. Keep "
                "it all the same with finish(..., allow_dropped=True), or discard it. Fewer or smaller "
                "pictures, JPEG, or a larger queue_bytes prevent this."
            )
        if self.dropped:
            self.metadata["dropped"] = dict(self.dropped)
        try:
            self._catch_up()
            self._process.request("finish", {"outcome": str(outcome)})
        finally:
            self._open = False
        return self.id

    def discard(self) -> None:
        """Throw the recording away, as when a person wants to record the episode again."""
        self._needs_open()
        self._open = False
        self._process.request("discard", {})

    def close(self) -> None:
        """Stop recording; what was queued is written, and the recording can be recovered."""
        if self._open:
            self._open = False
            self._catch_up()
            self._process.request("close", {})

    def __enter__(self) -> Self:
        """Start of the recording."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the steps so far and stop recording."""
        self.close()

    def _offer_or_keep(self, kind: str, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        if not (self._caught_up() and self._offer(kind, facts, arrays)):
            self._late.append((kind, facts, _copied(arrays)))

    def _offer(self, kind: str, facts: dict[str, Any], arrays: dict[str, Any]) -> bool:
        """Offer a plan or an event; no step may be held back, so that what is lost is known."""
        if kind == "chunk":
            first = facts["first_step"]
            facts = {**facts, "first_step": first - bisect_left(self._lost, first)}
        return self._process.offer(kind, facts, arrays)

    def _offer_step(self, step: Step, observation: dict[str, Any], extra: dict[str, Any]) -> bool:
        facts, arrays = step_parts(step)
        rows = prefixed("observation", observation) | prefixed("extra", extra)
        return self._process.offer("step", facts, arrays | rows)

    def _caught_up(self) -> bool:
        """Whether nothing is held back any more."""
        if self._held is not None:
            step, observation, extra = self._held
            if self._missing:
                step = replace(step, source=Source.PAUSED, segment_kind=SegmentKind.NONE)
            if not self._offer_step(step, observation, extra):
                return False
            if self._missing:
                self._late.insert(0, ("event", self._gap(step).to_json(), {}))
            self._held, self._missing = None, 0
        while self._late:
            if not self._offer(*self._late[0]):
                return False
            del self._late[0]
        metadata = plain(self.metadata)
        if metadata != self._told and self._process.offer("metadata", metadata):
            self._told = metadata
        return True

    def _catch_up(self) -> None:
        self._process.until(
            lambda: (self._caught_up() and self._told == plain(self.metadata)) or None, "what was held back"
        )

    def _gap(self, step: Step) -> Event:
        at, wall = self._moment  # a clock that failed gives no number, which an event needs
        return Event(
            time=step.monotonic_time if math.isfinite(step.monotonic_time) else at,
            wall_time=step.wall_time if math.isfinite(step.wall_time) else wall,
            kind=EventKind.NOTE,
            because=f"the recording queue was full: {self._missing} steps before this one are missing",
            data={"dropped_steps": self._missing},
        )

    def _count(self, what: str) -> None:
        if what not in self.dropped:
            logger.error("Episode %s: the recording queue is full; %s are being lost", self.id, what)
        self.dropped[what] = self.dropped.get(what, 0) + 1

    def _needs_open(self) -> None:
        if not self._open:
            raise StoreError(f"The recorder of episode {self.id} is closed; start another one.")


def _checked(given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    return {check_key(key): value for key, value in given.items()}


def _copied(given: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    return {key: np.array(value) for key, value in given.items()}
