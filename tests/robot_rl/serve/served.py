"""Policies, parts and a server process for tests; importable by the process that serves."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch

from data.features import Feature
from policies.hooks import DenoiseHook
from policies.policy import PolicyError, PolicySpec, Supports
from policies.template_policy import HoldPolicy
from robot_rl.noise.policy import NoisePolicy
from robot_rl.select.selector import Selector
from tests.robot_rl.scripted import SPEC, Shift

REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE_S = 150.0
"""Two processes that import torch share a busy machine with others."""


class GatedPolicy(HoldPolicy):
    """Answers with its noise plus the state; a state of 7 waits at a gate, 8 fails, 9 gives no numbers.

    The gate is a pair of named pipes in a folder: it writes to "entered" and waits for a byte in "go".
    """

    def __init__(self, gate: str = "", seconds: float = 0.0) -> None:
        super().__init__((0.0, 0.0))
        self.gate, self.seconds = gate, seconds
        self._spec = PolicySpec(
            "gated", {"observation.state": Feature((2,), "float32", "m")}, SPEC, 1, 4, 3, 0, 10.0,
            Supports(noise=True),
        )  # fmt: skip

    def chunk(self, request, noise=None, condition=None):
        state = request.observation["observation.state"][:, -1]
        first = float(state[0, 0])
        select.select([], [], [], self.seconds)
        if first == 7:
            Path(self.gate, "entered").write_bytes(b"x")
            Path(self.gate, "go").read_bytes()
        if first == 8:
            raise PolicyError("out of memory, say")
        chunk = noise + state[:, None]
        return chunk * torch.nan if first == 9 else chunk

    def payload(self):
        return {"gate": self.gate, "seconds": self.seconds}

    @classmethod
    def from_payload(cls, payload):
        return cls(payload["gate"], payload["seconds"])


class _Part:
    """A part without tensors, saved by its class alone."""

    def payload(self):
        return {}

    def tensors(self):
        return {"none": torch.zeros(1)}

    @classmethod
    def from_payload(cls, payload, tensors):
        return cls()


class Double(_Part, NoisePolicy):
    """Takes twice the noise that was drawn; explores by ten times."""

    def propose(self, request, noise, *, deterministic):
        return noise * (2.0 if deterministic else 10.0)


class LeastSum(_Part, Selector):
    """Of the base's own chunk and two more it takes the one with the least sum."""

    def propose(self, request, policy, noise, generators):
        from policies.noise import draw_noise

        more = [draw_noise(policy.spec, generators) for _ in range(2)]
        return torch.stack([policy.chunk(request, each) for each in (noise, *more)], dim=1)

    def select(self, candidates, request):
        return candidates.sum((2, 3)).argmin(1)


class Counts(_Part, DenoiseHook):
    """Says how many chunks an episode has had, which a new episode forgets."""

    def __init__(self):
        self.seen, self.last = {}, None

    def begin_episode(self, rows):
        for row in rows:
            self.seen.pop(row, None)

    def begin_chunk(self, request, policy, context):
        for row in request.episode_ids:
            self.seen[row] = self.seen.get(row, 0) + 1
        self.last = torch.tensor([self.seen[row] for row in request.episode_ids])

    def info(self):
        return {"counts.chunks": self.last, "counts.known": torch.full_like(self.last, len(self.seen))}


def make_gate(folder):
    """Two named pipes."""
    for name in ("entered", "go"):
        os.mkfifo(folder / name)
    return folder


def entered(gate):
    """Wait until the policy is at the gate."""
    pipe = os.open(gate / "entered", os.O_RDONLY | os.O_NONBLOCK)

    def look():
        try:
            return os.read(pipe, 1)
        except BlockingIOError:
            return b""

    try:
        until(look, "the policy came to the gate")
    finally:
        os.close(pipe)


def until(holds, what):
    """Ask again and again until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come to pass within {DEADLINE_S} s"
        select.select([], [], [], 0.005)
    return found


class ServerProcess:
    """A running ``robot-rl serve``."""

    def __init__(self, process, log):
        self.process, self.log = process, log
        self.address = ""

    @property
    def said(self):
        return self.log.read_text()

    def wait_for(self, pattern):
        """The first match in what it said so far, or soon says."""

        def look():
            assert self.process.poll() is None or re.search(pattern, self.said), self.said
            return re.search(pattern, self.said)

        return until(look, pattern)


@contextmanager
def serving(folder, *words, log, token=None, port=0):
    """Serve a policy in a process of its own at a free port; killed at the end if it is still there."""
    env = {key: value for key, value in os.environ.items() if key != "ROBOT_RL_TOKEN"}
    env |= {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    env |= {} if token is None else {"ROBOT_RL_TOKEN": token}
    command = [sys.executable, "-m", "robot_rl.cli", "serve", "--policy", str(folder), "--port", str(port)]
    with log.open("a") as out:
        process = subprocess.Popen(
            [*command, *words], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=REPOSITORY
        )
    server = ServerProcess(process, log)
    try:
        server.address = server.wait_for(r" at (ws://\S+)")[1]
        yield server
    finally:
        process.kill()
        process.wait()


class SavedShift(_Part, Shift):
    """A corrector that can be saved."""

    def __init__(self):
        super().__init__(0.1)
