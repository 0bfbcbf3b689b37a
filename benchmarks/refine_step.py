"""Where the time of one refinement step goes: acting per environment step, learning per update.

In a refinement the two run in a process each; here they run one after the other so that each can be taken
apart. The base has random weights and the replay holds its rollouts: neither changes what a step costs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import PartClock, Share, parser, publish

import sim
from data.statistics import compute_statistics
from data.store import EpisodeStore
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from robot_rl.control import ControlLoop, LoopConfig
from robot_rl.correct import residual_learner
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data.records import Episode

BASE_INPUTS = ("observation.state", "observation.environment_state")
HISTORY = ("observation.environment_state", "observation.wrench")


def base_policy(env: Any) -> FlowPolicy:  # noqa: ANN401 - any task
    """Builds a flow policy of the default size, fitted to what a task gives under random actions."""
    inputs = tuple(key for key in BASE_INPUTS if key in env.features)
    rows: dict[str, list[np.ndarray]] = {key: [] for key in (*inputs, "action")}
    generator = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    for _ in range(200):
        action = generator.uniform(env.action_spec.low, env.action_spec.high)
        for key, value in {**observation, "action": action}.items():
            if key in rows:
                rows[key].append(value)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    policy = FlowPolicy(FlowConfig(inputs=inputs), env.features, env.action_spec)
    policy.fit(compute_statistics({key: np.stack(values) for key, values in rows.items()}))
    return policy.eval()


def residual_network(env: Any, episodes: Sequence[Episode]) -> ResidualNetwork:  # noqa: ANN401 - any task
    """Builds the corrector's network on everything that the task senses, as a refinement does."""
    keys = tuple(key for key in env.features if not key.startswith("observation.images."))
    inputs = InputConfig(keys=keys, history_keys=tuple(key for key in HISTORY if key in env.features))
    x = np.concatenate([inputs.recorded(episode) for episode in episodes])
    scale = 0.1 * (env.action_spec.high - env.action_spec.low)
    return ResidualNetwork(ResidualConfig(inputs), x.mean(0), x.std(0) + 1e-6, scale, 2.0 * scale)


def acting(task: str, rows: int, waves: int) -> tuple[list[Share], list[Episode], ResidualNetwork, int]:
    """Times waves of corrected episodes that are written to a store."""
    envs: list[Any] = [sim.make(task) for _ in range(rows)]
    policy = base_policy(envs[0])
    episodes = ControlLoop(envs, policy).run(range(rows))
    network = residual_network(envs[0], episodes)
    corrector = ResidualCorrector(network)
    refiner = Refiner(correct=corrector, base_hash=policy.hash())
    loop = ControlLoop(envs, policy, refiner, LoopConfig(deterministic=False))
    with tempfile.TemporaryDirectory() as folder:
        store = EpisodeStore(Path(folder) / "episodes")
        clock = PartClock()
        for env in envs:
            clock.watch(env, "step", "simulation")
            clock.watch(env, "reset", "reset")
        clock.watch(policy, "chunk", "base policy")
        clock.watch(corrector, "correct", "corrector")
        clock.watch(store, "write", "episode store")
        start, steps = time.process_time(), 0
        for wave in range(1, waves + 1):
            found = loop.run(range(wave * rows, (wave + 1) * rows))
            for episode in found:
                store.write(episode)
            steps += sum(map(len, found))
            episodes += found
        seconds = time.process_time() - start
    shares = clock.shares("acting per environment step", seconds, steps)
    return shares, episodes, network, policy.spec.executed_steps


def learning(
    episodes: Sequence[Episode], network: ResidualNetwork, executed_steps: int, updates: int
) -> list[Share]:
    """Times updates of the residual's learner on recorded episodes."""
    capacity = sum(len(episode) + 1 for episode in episodes)
    learner = ResidualLearner(
        network, ResidualLearnerConfig(), executed_steps=executed_steps, capacity=capacity
    )
    learner.add(episodes)
    learner.update(2)
    clock = PartClock()
    clock.watch(learner, "_update_critic", "critics")
    clock.watch(learner, "_update_actor", "actor and temperature")
    clock.watch(residual_learner, "track", "averages of critics and actor")
    start = time.process_time()
    learner.update(updates)
    return clock.shares("learning per update", time.process_time() - start, updates)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--task", default="peg-insert")
    command.add_argument("--rows", type=int, default=8, help="episodes side by side")
    command.add_argument("--updates", type=int, default=200, help="updates to time")
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    acted, episodes, network, executed = acting(options.task, options.rows, options.repeats)
    learned = learning(episodes, network, executed, options.updates)
    publish("refine_step", [*acted, *learned], json_path=options.json)


if __name__ == "__main__":
    main()
