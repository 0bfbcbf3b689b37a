"""Recording that never makes a control loop wait: a process of its own packs and writes.

The loop copies what it has into a bounded queue in shared memory, which takes far less than a millisecond,
and goes on. Should the disk or the processor be too slow for the cameras, the queue fills up; what does not
fit then is counted, logged, and an error when the episode is finished.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from data.errors import LockedStoreError, StoreError
from data.features import to_json
from data.plain import plain
from data.recording.messages import encode
from data.recording.queued import QueuedRecorder
from data.recording.ring import RingSender
from data.steps import check_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from numpy.typing import ArrayLike

    from data.features import Feature
    from data.store import EpisodeStore

logger = logging.getLogger(__name__)
QUEUE_BYTES = 256 << 20
_PATIENCE_S = 600.0
_CLOSE_S = 60.0
_POLL_S = 0.002
_ERRORS: Mapping[str, type[Exception]] = {
    "LockedStoreError": LockedStoreError,
    "ValueError": ValueError,
    "TypeError": TypeError,
}
_PROGRAM = "import sys; sys.path[0] = sys.argv.pop(1); from data.recording.writer import main; main()"


class RecordingProcess:
    """A process that writes the episodes of a store, one after the other.

    Start it before the control loop and close it after; it may record any number of episodes. When the
    process that started it dies, it still writes what it was sent.

    Args:
        store: Where the episodes go, with its way of storing pictures.
        queue_bytes: Room for what is not written yet; three colour cameras of 640x480 at 30 Hz fill 83 MB/s.

    Raises:
        StoreError: The process cannot be started.
    """

    def __init__(self, store: EpisodeStore, *, queue_bytes: int = QUEUE_BYTES) -> None:
        try:
            self._ring = RingSender(queue_bytes)
            self._process = _started(self._ring)
        except OSError as error:
            raise StoreError(
                f"No process can be started that writes the recording: {error.strerror}."
            ) from error
        assert self._process.stdout is not None
        self._replies = self._process.stdout
        os.set_blocking(self._replies.fileno(), False)
        self._unread = b""
        self._failure: Exception | None = None
        self._latest: QueuedRecorder | None = None
        self._open = True
        try:
            self.request("open", store.settings())
        except Exception:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the writer."""
        return self._process.pid

    @property
    def waiting(self) -> int:
        """Bytes in the queue that are not written yet."""
        return self._ring.waiting

    def recorder(
        self,
        *,
        flush_every: int = 20,
        stream_features: Mapping[str, Feature] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **facts: Any,  # noqa: ANN401 - EpisodeBuilder's
    ) -> QueuedRecorder:
        """Begin an episode; arguments as for `EpisodeStore.recorder`. Waits until the store is locked.

        Raises:
            StoreError: The episode before is not finished, there is such an episode or recording, or it
                cannot be written.
            LockedStoreError: Another process is writing to the store.
        """
        facts = {**facts, "metadata": plain(dict(metadata or {})), "flush_every": flush_every}
        self._look()
        if self._latest is not None and self._latest.open and self._failure is None:
            raise StoreError(
                f"Episode {self._latest.id} is still being recorded, and a RecordingProcess records one at a "
                "time: finish, discard or close it first, or start another process with a store of its own."
            )
        if self._latest is not None:
            self._latest.abandon()  # the writer gave it up when it failed
        self._failure = None
        self.request("begin", {**facts, "stream_features": to_json(stream_features or {})})
        self._latest = QueuedRecorder(self, check_id(facts["id"]), facts["metadata"])
        return self._latest

    def offer(
        self,
        kind: str,
        facts: Mapping[str, Any],
        arrays: Mapping[str, ArrayLike] | None = None,
        *,
        spare: float = 0.0,
    ) -> bool:
        """Put a message into the queue if there is room; never waits.

        Args:
            kind: What the writer is to do.
            facts: With this, as JSON.
            arrays: And these.
            spare: Share of the queue that must stay free for what matters more.

        Returns:
            Whether there was room.

        Raises:
            StoreError: The writer failed at something before, or is gone.
        """
        self._look()
        if self._failure is not None:
            raise self._failure
        try:
            return self._ring.send(encode(kind, facts, arrays or {}), spare=int(spare * self._ring.size))
        except BrokenPipeError:
            raise self._gone() from None

    def push(
        self, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, ArrayLike] | None = None
    ) -> None:
        """Put a message into the queue, waiting for room.

        Raises:
            StoreError: The writer failed at something before, is gone, or read nothing for ten minutes.
        """
        self.until(lambda: self.offer(kind, facts, arrays) or None, kind)

    def request(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send a message, and wait until the writer has done it and everything before.

        Raises:
            StoreError: It failed.
        """
        self.push(kind, facts)
        self.until(lambda: self._answered(kind), kind)

    def close(self) -> None:
        """Write what is in the queue, leave an unfinished recording to be recovered, and end the process.

        Raises:
            StoreError: The process read nothing for a minute; it may be closed again when it goes on.
        """
        if self._open:
            self._ring.end()
            self._wait()
            self._open = False
            self._ring.close()
            self._replies.close()

    def __enter__(self) -> Self:
        """Enter with the process running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def until(self, done: Callable[[], bool | None], what: str) -> None:
        """Ask again and again until something is done.

        Args:
            done: Says None while it is not.
            what: How it is called in the error.

        Raises:
            StoreError: It was not done within ten minutes.
        """
        end = time.monotonic() + _PATIENCE_S
        while done() is None:
            if time.monotonic() > end:
                raise StoreError(f"The writing process did nothing about {what!r} for {_PATIENCE_S:.0f} s.")
            select.select([self._replies], [], [], _POLL_S)

    def _answered(self, kind: str) -> bool | None:
        if {"done": kind} in self._look():
            return True
        if self._failure is not None:
            raise self._failure
        if self._process.poll() is not None:
            raise self._gone()
        return None

    def _look(self) -> list[dict[str, Any]]:
        try:
            self._unread += os.read(self._replies.fileno(), 1 << 16)
        except BlockingIOError:
            return []
        *lines, self._unread = self._unread.split(b"\n")
        replies = [json.loads(line) for line in lines]
        for reply in replies:
            if "failed" in reply:
                self._failure = _ERRORS.get(reply["error"], StoreError)(reply["failed"])
                logger.error("The writing process failed: %s", reply["failed"])
        return replies

    def _wait(self) -> None:
        """Wait until the process ends, as long as it reads on."""
        before = self._ring.waiting
        while True:
            try:
                self._process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired as error:
                now = self._ring.waiting
                if now == before:
                    raise StoreError(
                        f"The writing process {self.pid} has read nothing for {_CLOSE_S:g} s and has {now} "
                        f"bytes to write. Nothing is lost as long as it lives: if it was stopped, "
                        f"`kill -CONT {self.pid}` lets it go on, and it ends by itself."
                    ) from error
                before = now
            else:
                return

    def _gone(self) -> StoreError:
        try:
            how = f"ended with code {self._process.wait(_CLOSE_S)}"
        except subprocess.TimeoutExpired:
            how = "takes nothing more"
        return StoreError(
            f"The writing process {how}. What it had flushed can be recovered: see "
            "EpisodeStore.partials; start another RecordingProcess to go on."
        )


def _started(ring: RingSender) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    handles = [str(handle) for handle in ring.child_handles]
    try:
        return subprocess.Popen(  # noqa: S603 - our own program and numbers
            [sys.executable, "-c", _PROGRAM, root, *handles, str(ring.size)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=ring.child_handles,
        )
    except OSError:
        ring.close()
        raise
    finally:
        ring.hand_over()
