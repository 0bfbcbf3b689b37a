"""A learner in a process of its own, so that collection and learning use a core each.

The two sides speak in rounds over a pipe: episode ids and counts as JSON one way, weights as safetensors the
other. Episodes themselves go through the episode store, which a resumed run also starts from. Each round is a
fixed amount of work on fixed episodes, so the outcome does not depend on how fast either side runs.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from safetensors.torch import load, save
from torch import Tensor

from data.store import EpisodeStore

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType

    from robot_rl.learn.learner import Learner

type Factory = Callable[[], "Learner"]


class LearnerDied(RuntimeError):  # noqa: N818 - says what happened
    """The learner's process ended on its own."""


@dataclass(frozen=True)
class Round:
    """What came of one round.

    Attributes:
        weights: The learner's snapshot.
        metrics: Mean diagnostics of the round's updates.
        state: The learner's exact state if it was asked for, else empty.
    """

    weights: dict[str, Tensor]
    metrics: dict[str, float]
    state: dict[str, Tensor]


class LearnerProcess:
    """Runs a learner beside the caller.

    Args:
        factory: Builds the learner in its process; picklable.
        store: Folder of the episode store that both sides use.
        episodes: Ids of the episodes that the learner starts with, in order.
        state: State to go on from; None starts fresh.
    """

    def __init__(
        self,
        factory: Factory,
        store: Path,
        *,
        episodes: Sequence[str] = (),
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, factory, str(store)), daemon=True)
        self._process.start()
        other.close()
        self._send(_json({"episodes": list(episodes), "updates": 0, "state": state is not None}))
        self._send(save(dict(state)) if state is not None else b"")
        self._waiting = False

    def begin(self, episodes: Sequence[str], updates: int, *, with_state: bool = False) -> None:
        """Start a round: take in stored episodes, then update; returns at once.

        Raises:
            RuntimeError: The last round has not been collected.
        """
        if self._waiting:
            raise RuntimeError("A round is running; collect it before the next begins.")
        self._send(_json({"episodes": list(episodes), "updates": updates, "state": with_state}))
        self._waiting = True

    def collect(self) -> Round:
        """Wait for the round's end.

        Raises:
            LearnerDied: The process ended; the run can be resumed from its last checkpoint.
            RuntimeError: The learner failed; carries its message.
        """
        self._waiting = False
        answer = json.loads(self._receive())
        if "error" in answer:
            raise RuntimeError(f"The learner failed: {answer['error']}")
        weights = load(self._receive())
        state = load(self._receive()) if answer["state"] else {}
        return Round(weights, answer["metrics"], state)

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, message: bytes) -> None:
        try:
            self._pipe.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._dead() from error

    def _receive(self) -> bytes:
        try:
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:  # OSError: it was killed in the middle of a message
            raise self._dead() from error

    def _dead(self) -> RuntimeError:
        self._process.join(timeout=5)
        with contextlib.suppress(EOFError, OSError):
            if self._pipe.poll():  # it failed between two rounds, and said why before it ended
                return RuntimeError(f"The learner failed: {json.loads(self._pipe.recv_bytes())['error']}")
        return LearnerDied(
            f"The learner's process ended with code {self._process.exitcode}; "
            "resume the run from its last checkpoint."
        )


def _json(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _serve(pipe: Connection, factory: Factory, store: str) -> None:
    """Answer rounds until the caller hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when Ctrl-C ends the run
    torch.set_num_threads(1)
    try:
        learner = factory()
        episodes = EpisodeStore(Path(store))
        start = json.loads(pipe.recv_bytes())
        learner.add([episodes.read(name) for name in start["episodes"]])
        state = pipe.recv_bytes()
        if start["state"]:
            learner.load_state(load(state))
        while True:
            _answer(pipe, learner, episodes, json.loads(pipe.recv_bytes()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
        pipe.send_bytes(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())


def _answer(pipe: Connection, learner: Learner, store: EpisodeStore, message: Mapping[str, Any]) -> None:
    learner.add([store.read(name) for name in message["episodes"]])
    metrics = learner.update(message["updates"]) if message["updates"] else {}
    pipe.send_bytes(json.dumps({"metrics": dict(metrics), "state": message["state"]}).encode())
    pipe.send_bytes(save(learner.snapshot()))
    if message["state"]:
        pipe.send_bytes(save(learner.state()))
