"""Look inside a policy's denoising: when does it decide, left or right?

    python examples/inspect_denoising.py                        # trains a small policy first
    python examples/inspect_denoising.py --policy outputs/mine  # or looks into yours for push-two-routes

A disc is to be pushed round a post, and both ways are as good. From one observation many chunks are drawn.
At each denoising step the policy's clean estimate already is a chunk: the table shows how far it is from
the final one, and how many of the chunks have chosen the side that they end on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

import robot_rl

if TYPE_CHECKING:
    from torch import Tensor

TASK = "push-two-routes"


class Watch(robot_rl.DenoiseHook):
    """Keeps what a hook sees and changes nothing: returning the same objects leaves the process bit-equal."""

    def __init__(self) -> None:
        self.sigmas: list[float] = []
        self.clean: list[Tensor] = []  # each (B, H, A), robot units

    def step(self, state: robot_rl.DenoiseState) -> tuple[Tensor, Tensor]:
        """Decode the clean estimate of this step."""
        self.sigmas.append(state.sigma)
        self.clean.append(state.policy.decode(state.clean, state.context))
        return state.x, state.velocity


def small_policy(folder: Path, steps: int, episodes: int) -> Path:
    """Collect demonstrations and train for seconds; good enough to look at."""
    demos, out = folder / "demos", folder / "base"
    if not demos.exists():
        robot_rl.collect_episodes(robot_rl.CollectConfig(out=demos, task=TASK, episodes=episodes, workers=1))
    if not out.exists():
        robot_rl.train_policy(robot_rl.TrainConfig(data=demos, out=out, steps=steps, batch=128, average=0.99))
    return out


def deciding_observation(steps: int) -> dict[str, Tensor | list[str]]:
    """Drive straight on for some steps, then say what the policy would see, (1, 1, ...)."""
    env = robot_rl.make_env(TASK)
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        observation, *_ = env.step(env.action_space.high * [1.0, 0.0])
    seen = {key: torch.as_tensor(value)[None, None] for key, value in observation.items()}
    return {**seen, "task": [env.unwrapped.task_text]}


def main(words: list[str] | None = None) -> None:
    """Draw chunks and print how they came about."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--out", type=Path, default=Path("outputs/two-routes"))
    parser.add_argument("--steps", type=int, default=600, help="updates of the small policy")
    parser.add_argument("--episodes", type=int, default=60, help="demonstrations for the small policy")
    parser.add_argument("--chunks", type=int, default=64)
    args = parser.parse_args(words)

    policy = robot_rl.load_policy(args.policy or small_policy(args.out, args.steps, args.episodes))
    observation = {
        key: value * args.chunks if isinstance(value, list) else value.expand(args.chunks, *value.shape[1:])
        for key, value in deciding_observation(steps=1).items()
    }
    noise = torch.randn(args.chunks, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(0))
    watch = Watch()
    final = robot_rl.sample_chunk(policy, robot_rl.ChunkRequest(observation), noise, hooks=[watch])
    unwatched = policy.chunk(robot_rl.ChunkRequest(observation), noise)
    assert torch.equal(final, unwatched), "a watcher changes nothing"

    table = Table("step", "sigma", "still to go, mm", "on its final side", title=f"{args.chunks} chunks")
    side = final[..., 1].sum(-1).sign()  # where the pusher ends up in y
    for index, (sigma, clean) in enumerate(zip(watch.sigmas, watch.clean, strict=True)):
        distance = 1000 * (clean - final).norm(dim=-1).mean()
        decided = (clean[..., 1].sum(-1).sign() == side).double().mean()
        table.add_row(str(index), f"{sigma:.2f}", f"{distance:.2f}", f"{decided:.0%}")
    Console().print(table)
    print(f"left {int((side > 0).sum())}, right {int((side < 0).sum())} of {args.chunks}")


if __name__ == "__main__":
    main()
