"""The process that writes what a control loop sends it; started by `process`, imports no torch.

When its sender dies it still writes everything that was sent, and leaves the recording to be recovered.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from data.errors import StoreError
from data.events import Event
from data.features import from_json
from data.images import PictureCodec
from data.recording.messages import below, chunk_from, decode, step_from
from data.recording.ring import RingReceiver
from data.store import EpisodeStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from data.recording.recorder import Recorder

    type Arrays = Mapping[str, NDArray[Any]]

logger = logging.getLogger(__name__)


class Writer:
    """Does what the messages say, one after the other.

    After a failure it takes no more of that episode and says so once; `begin` starts the next one.
    """

    def __init__(self) -> None:
        self._store: EpisodeStore | None = None
        self._recorder: Recorder | None = None

    def handle(self, kind: str, facts: dict[str, Any], arrays: Arrays) -> None:
        """Do one thing and answer where an answer is waited for."""
        try:
            getattr(self, f"_do_{kind}")(facts, arrays)
        except (StoreError, ValueError, TypeError, RuntimeError, OSError) as error:
            self.close()
            _answer({"failed": str(error), "error": type(error).__name__})

    def close(self) -> None:
        """Put everything on disk and leave the recording as it is."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            try:
                recorder.close()
            except StoreError as error:
                logger.error("%s", error)  # noqa: TRY400 - a traceback would bury what it says

    def _do_open(self, facts: dict[str, Any], _: Arrays) -> None:
        features = facts["features"]
        self._store = EpisodeStore(
            facts["path"],
            features=None if features is None else from_json(features),
            action_spec=facts["action_spec"],
            pictures=PictureCodec.from_json(facts["pictures"]),
            durable=facts["durable"],
        )
        _answer({"done": "open"})

    def _do_begin(self, facts: dict[str, Any], _: Arrays) -> None:
        assert self._store is not None
        features = from_json(facts.pop("stream_features"))
        self._recorder = self._store.recorder(stream_features=features, **facts)
        _answer({"done": "begin"})

    def _do_start(self, _: dict[str, Any], arrays: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.start(below("observation", arrays))

    def _do_step(self, facts: dict[str, Any], arrays: Arrays) -> None:
        if self._recorder is not None:
            step = step_from(facts, arrays)
            self._recorder.append(step, below("observation", arrays), below("extra", arrays))

    def _do_chunk(self, facts: dict[str, Any], arrays: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.add_chunk(chunk_from(facts, arrays))

    def _do_stream(self, facts: dict[str, Any], arrays: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.stream(facts["key"], facts["time"], facts["wall_time"], arrays["value"])

    def _do_event(self, facts: dict[str, Any], _: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.event(Event.from_json(facts))

    def _do_metadata(self, facts: dict[str, Any], _: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.metadata.clear()
            self._recorder.metadata.update(facts)

    def _do_finish(self, facts: dict[str, Any], _: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.finish(facts["outcome"])
            self._recorder = None
            _answer({"done": "finish"})

    def _do_discard(self, _facts: dict[str, Any], _: Arrays) -> None:
        if self._recorder is not None:
            self._recorder.discard()
            self._recorder = None
        _answer({"done": "discard"})

    def _do_close(self, _facts: dict[str, Any], _: Arrays) -> None:
        self.close()
        _answer({"done": "close"})


def main() -> None:
    """Read messages until the sender closes; arguments: three handles and the size of the ring."""
    # Ctrl-C, a closed terminal, the end of a service: all for the sender, whose death ends this by itself
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _yield_to_the_sender()
    memory, places, positions, size = map(int, sys.argv[1:5])
    writer = Writer()
    ring = RingReceiver(memory, places, positions, size)
    for message in ring:
        writer.handle(*decode(message))
    writer.close()
    ring.close()


def _yield_to_the_sender() -> None:
    """Do not take a processor away from the control loop, which wakes this process with every message.

    By default the process that is woken may go first, and under real-time priority, which it would inherit,
    it would not be stopped at all. A batch process never preempts another (sched(7), "SCHED_BATCH").
    """
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        logger.warning("The writing process may hold the control loop up: %s", error)


def _answer(reply: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(reply).encode() + b"\n")
    except BrokenPipeError:
        logger.warning("Nobody is there any more to read %s", reply)


if __name__ == "__main__":
    main()
