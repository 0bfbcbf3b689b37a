"""A websocket to a policy's server that says why it cannot answer, and is opened again when asked again.

Starts without torch.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from policies.errors import PolicyAwayError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 2.0


@dataclass(frozen=True)
class Timeouts:
    """How long a server may take, s.

    Attributes:
        connect: to open the connection and be greeted.
        answer: for one answer; a chunk that comes later is dropped.
        dead: after which a server that does not even answer a ping counts as gone.
    """

    connect: float = 2.0
    answer: float = 30.0
    dead: float = 3.0

    def __post_init__(self) -> None:
        for name in ("connect", "answer", "dead"):
            if not getattr(self, name) > 0:
                raise ValueError(f"timeout {name} is {getattr(self, name)} s; it must be positive")


class Connection:
    """One connection, opened by the first call and again after it was lost.

    After a failure the next attempt is made when somebody asks, not before a pause that doubles with each
    failure, from 0.1 s to 2 s; asked earlier, it fails at once. Calls of several threads take turns.

    Args:
        address: such as ``ws://host:8000``; wss is TLS.
        greet: called with the first message of each new connection; may refuse the server by raising.
        headers: of the request that opens the connection.
        timeouts: see `Timeouts`.

    Raises:
        ValueError: the address is none.
    """

    def __init__(
        self,
        address: str,
        greet: Callable[[bytes | str], None],
        *,
        headers: Mapping[str, str],
        timeouts: Timeouts,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in {"ws", "wss"} or not parts.hostname:
            raise ValueError(f"{address!r} is no address of a server; give ws://HOST:PORT or wss://HOST:PORT")
        self.address = address
        self._endpoint = (parts.hostname, parts.port or (443 if parts.scheme == "wss" else 80))
        self._greet, self._headers, self._timeouts = greet, dict(headers), timeouts
        self._socket: ClientConnection | None = None
        self._open_sockets = ExitStack()
        self._failures, self._not_before, self._because = 0, 0.0, ""
        self._lock = threading.Lock()

    def open(self) -> float:
        """Open the connection where there is none.

        Returns:
            how long that took, s; 0 where it is open.

        Raises:
            PolicyAwayError: the server is not there, or the pause after a failure is not over.
            PolicyError: the server refuses, as for a wrong token; asking again does not help.
        """
        with self._lock:
            return self._open()

    def exchange[T](self, data: bytes, read: Callable[[bytes | str], T | None]) -> T:
        """Send a message and wait for its answer.

        Args:
            data: what is sent.
            read: called with what arrives until it returns something; None drops what it was given.

        Raises:
            PolicyAwayError: the connection was lost, or no answer came in time.
        """
        with self._lock:
            self._open()
            assert self._socket is not None
            deadline = time.monotonic() + self._timeouts.answer
            try:
                self._socket.send(data)
                while True:
                    found = read(self._socket.recv(max(deadline - time.monotonic(), 0.0)))
                    if found is not None:
                        self._failures = 0
                        return found
            except TimeoutError:
                self._fail(f"no answer within {self._timeouts.answer:g} s")
            except (WebSocketException, OSError) as error:
                self._fail(_said(error, "the connection was lost"))
            except BaseException:  # no protocol is spoken, or Ctrl-C: an answer may come yet
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            self._drop()

    def _open(self) -> float:
        if self._socket is not None:
            return 0.0
        began = time.monotonic()
        if began < self._not_before:
            self._away(self._because)
        try:
            self._connect()
        except InvalidStatus as error:
            self._drop()
            self._refused(error)
        except (TimeoutError, OSError, InvalidHandshake, WebSocketException) as error:
            self._fail(_said(error, f"no server answers within {self._timeouts.connect:g} s"))
        except BaseException:
            self._drop()
            raise
        return time.monotonic() - began

    def _connect(self) -> None:
        raw = socket.create_connection(self._endpoint, timeout=self._timeouts.connect)
        try:
            raw.settimeout(None)

            # A server that reads nothing must not hold a sender for ever.
            whole, part = divmod(self._timeouts.answer, 1.0)
            limit = struct.pack("ll", int(whole), int(part * 1e6))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            opening = connect(
                self.address,
                sock=raw,
                additional_headers=self._headers,
                compression=None,
                proxy=None,
                max_size=None,
                open_timeout=self._timeouts.connect,
                ping_interval=self._timeouts.dead / 3,
                ping_timeout=self._timeouts.dead,
                close_timeout=0.1,
            )
            self._socket = self._open_sockets.enter_context(opening)
        except BaseException:
            raw.close()
            raise
        self._greet(self._socket.recv(self._timeouts.connect))

    def _refused(self, error: InvalidStatus) -> NoReturn:
        status = error.response.status_code
        text = (error.response.body or b"").decode(errors="replace").strip()
        if status == 503:
            self._fail(text or "the server is full")
        hint = " (give the server's token: token=..., or the environment variable ROBOT_RL_TOKEN)"
        raise PolicyError(f"{self.address} refuses with {status}: {text}{hint if status == 401 else ''}")

    def _fail(self, because: str) -> NoReturn:
        self._drop()
        pause = min(FIRST_BACKOFF_S * 2.0**self._failures, MOST_BACKOFF_S)
        self._failures += 1
        self._not_before, self._because = time.monotonic() + pause, because
        self._away(because)

    def _away(self, because: str) -> NoReturn:
        wait = max(self._not_before - time.monotonic(), 0.0)
        raise PolicyAwayError(
            f"the policy's server at {self.address} gives no chunk: {because}; a call after {wait:.1f} s "
            "connects again",
            f"the policy's server is away: {because}",
            wait,
        )

    def _drop(self) -> None:
        self._socket = None
        self._open_sockets.close()


def _said(error: Exception, otherwise: str) -> str:
    """What an error says, in short; `otherwise` for those that say nothing useful."""
    if isinstance(error, ConnectionRefusedError):
        return "no server listens there"
    return f"{otherwise} ({error or type(error).__name__})"
