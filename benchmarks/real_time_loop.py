"""A 50 Hz loop fed by a policy that needs about six control steps for a chunk: what it misses.

The policy is a flow with random weights, made wide enough that one chunk costs the wanted time on this
machine. It computes in a thread beside the loop (`robot_rl.BackgroundPlanner`), with real-time chunking. A
loop that waits for its chunks runs in the same way after it and shows what that misses.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from harness import Amount, parser, publish

from data.features import Feature
from data.statistics import compute_statistics
from hardware.action_spec import ActionGroup, ActionSpec
from hardware.clock import WallClock
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from policies.request import ChunkRequest
from robot_rl.control import ControlLoop
from robot_rl.guide.real_time import RealTimeChunking
from robot_rl.planner import BackgroundPlanner
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from robot_rl.planner import Planner

RATE_HZ = 50.0
KEY = "observation.state"
FEATURES = {KEY: Feature((7,), "float32", "rad")}
SPEC = ActionSpec(
    (ActionGroup("arm", 7, "absolute", "joint", unit="rad", low=(-3.0,), high=(3.0,)),), RATE_HZ
)


class Arm(gymnasium.Env[Any, Any]):
    """Seven joints that are where they were told to be."""

    features = FEATURES
    action_spec = SPEC
    task_text = "move"

    def __init__(self, steps: int) -> None:
        self.max_steps = steps

    def reset(self, **_: object) -> tuple[Any, Any]:
        self._joints, self._steps = np.zeros(7, np.float32), 0
        return {KEY: self._joints}, {"success": False}

    def step(self, action: NDArray[np.float64]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._joints, self._steps = np.asarray(action, np.float32), self._steps + 1
        return {KEY: self._joints}, 0.0, False, self._steps >= self.max_steps, {"success": False}


@dataclass(frozen=True)
class Slow:
    """A policy and the seconds that one of its chunks takes."""

    policy: FlowPolicy
    seconds: float


def slow_policy(seconds: float) -> Slow:
    """Widens a policy until one chunk takes at least this long."""
    hidden = 512
    while True:
        config = FlowConfig(
            inputs=(KEY,), horizon=50, executed_steps=20, hidden=hidden, layers=4, prediction="clean"
        )
        policy = FlowPolicy(config, FEATURES, SPEC)
        generator = np.random.default_rng(0)
        policy.fit(compute_statistics({key: generator.uniform(-1, 1, (1000, 7)) for key in (KEY, "action")}))
        policy.requires_grad_(False).eval()
        asked = ChunkRequest({KEY: torch.zeros(1, 1, 7)})
        noise = torch.zeros(1, *policy.spec.noise_shape)
        taken = []
        for _ in range(4):
            began = time.perf_counter()
            policy.chunk(asked, noise)
            taken.append(time.perf_counter() - began)
        if min(taken) >= seconds:
            return Slow(policy, sorted(taken)[1])
        hidden = int(hidden * 1.2)


def run(name: str, slow: Slow, steps: int, planner: Planner | None) -> Amount:
    """Runs one loop in real time and says what it missed."""
    refiner = Refiner(hooks=(RealTimeChunking(),))
    loop = ControlLoop([Arm(steps)], slow.policy, refiner, clock=WallClock(), planner=planner)
    (episode,) = loop.run([0])
    missed = int(episode.metadata.get("missed_ticks", 0))
    late = 1e3 * float(episode.metadata.get("longest_lateness_s", 0.0))
    held = int((episode.chunk_id < 0).sum())
    delay = max((chunk.delay for chunk in episode.chunks[1:]), default=0)
    values = {
        "steps": steps,
        "rate_hz": RATE_HZ,
        "chunk_ms": 1e3 * slow.seconds,
        "parameters": sum(each.numel() for each in slow.policy.parameters()),
        "missed_steps": missed,
        "longest_lateness_ms": late,
        "held_steps": held,
        "greatest_delay_steps": delay,
    }
    text = f"{missed} of {steps} steps missed, {late:.0f} ms late at most; {held} steps on hold; "
    text += f"a chunk takes {1e3 * slow.seconds:.0f} ms alone and came {delay} steps late at most"
    return Amount(name, text, values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0], repeats=1)
    command.add_argument("--seconds", type=float, default=20.0, help="length of each loop")
    command.add_argument("--slow", type=float, default=6.0, help="control steps that a chunk should take")
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    slow = slow_policy(options.slow / RATE_HZ)
    steps = round(options.seconds * RATE_HZ)
    with BackgroundPlanner(RATE_HZ) as planner:
        found = [run("computed beside the loop", slow, steps, planner)]
    found.append(run("computed in the loop", slow, steps, None))
    publish("real_time_loop", found, json_path=options.json)


if __name__ == "__main__":
    main()
