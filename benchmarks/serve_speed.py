"""Round trips of `robot-rl serve` with two 224 x 224 pictures, beside a bare server of openpi's protocol.

Both servers are processes of their own on this machine and return a stored chunk at once, so what is timed is
the way: packing, the socket, checking, unpacking. The peer checks nothing: openpi-client 0.1.2 asks a server
that unpacks the pictures with openpi-client's own code and answers.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import Contestant, measure, parser, publish

from data.features import Feature
from policies.checkpoint import save
from policies.policy import PolicySpec
from policies.remote import RemotePolicy
from policies.request import ChunkRequest
from policies.template_policy import HoldPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness import Stopwatch

STATE, ACTION, HORIZON, SIZE = 8, 3, 16, 224
PICTURES = ("observation.images.base", "observation.images.wrist")
PEER = "openpi-client"


class ReturnsAtOnce(HoldPolicy):
    """Reads two pictures and a state, and returns a stored chunk."""

    def __init__(self, action: tuple[float, ...] = (0.0,) * ACTION) -> None:
        super().__init__(action)
        pictures = {key: Feature((SIZE, SIZE, 3), "uint8") for key in PICTURES}
        self._spec = PolicySpec(
            "returns-at-once",
            {**pictures, "observation.state": Feature((STATE,), "float32")},
            self._spec.action_spec,
            observation_steps=1,
            horizon=HORIZON,
            executed_steps=HORIZON,
            first_action=0,
            rate_hz=20.0,
        )

    def chunk(self, request: ChunkRequest, noise: object = None, condition: object = None) -> torch.Tensor:
        """Returns what is stored."""
        del noise, condition
        return self.action.expand(request.rows_count, HORIZON, -1)


def echo() -> None:
    """Runs the peer's server until it is killed; prints its port."""
    from openpi_client import msgpack_numpy
    from websockets.asyncio.server import ServerConnection, serve

    answer = {"actions": np.zeros((HORIZON, ACTION))}

    async def talk(connection: ServerConnection) -> None:
        packer = msgpack_numpy.Packer()
        await connection.send(packer.pack({}))
        async for data in connection:
            msgpack_numpy.unpackb(data)
            await connection.send(packer.pack(answer))

    async def run() -> None:
        async with serve(talk, "127.0.0.1", 0, compression=None, max_size=None) as server:
            print(f"at ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
            await server.serve_forever()

    asyncio.run(run())


@contextmanager
def process(*command: str) -> Iterator[str]:
    """Starts a server and yields the address that it prints; kills it in the end."""
    here = Path(__file__).resolve().parent
    env = os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{here.parent}", "COLUMNS": "500"}
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        yield next(word for word in line.split() if word.startswith("ws://"))
    finally:
        started.kill()
        started.communicate()


def ours(address: str, calls: int) -> Contestant:
    """Builds the contestant that asks `robot-rl serve` through `RemotePolicy`."""
    policy = RemotePolicy(address)
    pictures = {key: torch.from_numpy(picture()[None, None]) for key in PICTURES}
    request = ChunkRequest({**pictures, "observation.state": torch.zeros(1, 1, STATE)}, episode_ids=("a",))

    def turn(stopwatch: Stopwatch) -> int:
        with stopwatch:
            for _ in range(calls):
                policy.chunk(request)
        return calls

    return Contestant("robot-rl serve", turn, "round trip", PEER, {"calls": calls})


def theirs(address: str, calls: int) -> Contestant:
    """Builds the contestant that asks the bare server through openpi-client."""
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is older than websockets 17
        client = WebsocketClientPolicy(address)
        observation: dict[str, Any] = {key: picture() for key in PICTURES}
        observation["observation.state"] = np.zeros(STATE, np.float32)
        client.infer(observation)

    def turn(stopwatch: Stopwatch) -> int:
        with stopwatch:
            for _ in range(calls):
                client.infer(observation)
        return calls

    return Contestant(PEER, turn, "round trip", None, {"calls": calls})


def picture() -> np.ndarray:
    """Noise, (224, 224, 3)."""
    return np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), np.uint8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0], repeats=9)
    command.add_argument("--calls", type=int, default=100, help="round trips in a turn")
    command.add_argument("--echo", action="store_true", help="be the peer's server")
    options = command.parse_args(arguments)
    if options.echo:
        echo()
        return
    from serve_speed import ReturnsAtOnce as Saved  # under the name by which the server finds it again

    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        save(Saved(), folder)
        words = ("-m", "robot_rl.cli", "serve", "--policy", folder, "--port", "0")
        made = [ours(stack.enter_context(process(sys.executable, *words)), options.calls)]
        try:
            import openpi_client  # noqa: F401 - the server's process imports it too
        except ImportError:
            skipped[PEER] = "not installed; it comes with the extra dev"
        else:
            address = stack.enter_context(process(sys.executable, __file__, "--echo"))
            made.append(theirs(address, options.calls))
        figures = measure(made, repeats=options.repeats, clock="wall")
    publish("serve_speed", figures, skipped=skipped, json_path=options.json)


if __name__ == "__main__":
    main()
