"""The websocket server: connections, tokens, health, and one thread that computes chunks in turn."""

from __future__ import annotations

import asyncio
import http
import json
import logging
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from policies import wire
from robot_rl.serve.config import shows_token
from robot_rl.serve.engine import Client
from robot_rl.serve.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.http11 import Request, Response

    from robot_rl.serve.config import ServeConfig
    from robot_rl.serve.engine import Engine

logger = logging.getLogger(__name__)

GRACE_S = 30.0
"""How long a server that is stopped waits for the chunks in work."""


class PolicyServer:
    """Serves an engine until it is stopped.

    Each client has at most one request in work; they are answered in the order in which they came, one at
    a time, by a thread of its own, so that pings, health and other clients never wait for a network. Only a
    policy that needs less time than the thread would cost answers without it, while nobody else waits.

    Args:
        engine: answers messages.
        config: where to listen, and limits.
        token: that clients must show; empty for none.
    """

    def __init__(self, engine: Engine, config: ServeConfig, token: bytes) -> None:
        self._engine, self._config, self._token = engine, config, token
        self._hello = engine.hello()
        self._clients: dict[int, Client] = {}
        self._count, self._answered, self._waiting, self._leaving = 0, 0, 0, 0
        self._idle, self._stopping = asyncio.Event(), False
        self._began = time.monotonic()

    async def run(self, ready: Callable[[str], None]) -> None:
        """Serve until Ctrl-C or SIGTERM; a chunk in work is finished and sent.

        Args:
            ready: called with the address once clients can connect.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        self._worker = Worker("policy")
        try:
            async with await self._listen() as server:
                host, port = next(iter(server.sockets)).getsockname()[:2]
                ready(f"ws://{f'[{host}]' if ':' in host else host}:{port}")
                await stop.wait()
                for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C does not wait
                    loop.remove_signal_handler(number)
                logger.info("stopping; %d requests were answered", self._answered)
                await self._finish(server)
        finally:
            self._worker.close()

    async def _finish(self, server: Server) -> None:
        """Take nobody in any more, send what is in work, and close."""
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self._waiting:
                    self._idle.clear()
                    await self._idle.wait()
        server.close(code=1001, reason="the server is stopping")

    async def _listen(self) -> Server:
        return await serve(
            self._talk,
            self._config.host,
            self._config.port,
            origins=[None],  # a page in somebody's browser must not reach a policy on that machine
            process_request=self._admit,
            compression=None,
            # Up to twice what is read is still answered with a reason; beyond that the connection ends.
            max_size=2 * self._config.megabytes * 1_000_000,
            max_queue=2,
            close_timeout=2.0,
            server_header=None,
        )

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer health, and turn away whoever shows no token or finds no place; None lets a client in."""
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, json.dumps(self._health()) + "\n")
        who = connection.remote_address
        if not shows_token(request.headers.get("Authorization"), self._token):
            logger.warning("turned away %s: wrong or no token", who)
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "wrong or no token\n")
        if self._stopping:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping\n")
        if len(self._clients) >= self._config.clients:
            logger.warning("turned away %s: there are %d clients already", who, len(self._clients))
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "the server has no place left\n")
        return None

    def _health(self) -> dict[str, object]:
        return {
            "status": "ok",
            "protocol": wire.PROTOCOL,
            "clients": len(self._clients),
            "waiting": self._waiting,
            "answered": self._answered,
            "up_s": round(time.monotonic() - self._began, 1),
        }

    async def _talk(self, connection: ServerConnection) -> None:
        self._count += 1
        client = self._clients[self._count] = Client(self._count)
        logger.info("client %d connected from %s", client.number, connection.remote_address)
        closed = asyncio.ensure_future(connection.wait_closed())
        closed.add_done_callback(lambda _: setattr(client, "gone", True))
        try:
            await connection.send(self._hello)
            async for data in connection:
                await self._answer(connection, client, data)
                if self._stopping:
                    break
        except ConnectionClosed:
            pass
        finally:
            closed.cancel()
            del self._clients[client.number]
            self._leaving += 1
            await self._worker.run(partial(self._engine.forget, client))
            self._leaving -= 1
            logger.info(
                "client %d left after %d chunks, %d refused", client.number, client.chunks, client.refused
            )

    async def _answer(self, connection: ServerConnection, client: Client, data: bytes | str) -> None:
        job = partial(self._engine.answer, client, data, time.perf_counter())
        self._waiting += 1
        try:
            alone = self._waiting == 1 and not self._leaving
            reply = job() if alone and self._engine.quick else await self._worker.run(job)
            if reply is not None:
                await connection.send(reply)
                self._answered += 1
        finally:
            self._waiting -= 1
            self._idle.set()
