"""Refine a policy of your own on a Gymnasium task of your own.

    python examples/refine_my_task.py

The task: a boat shall dock in a current that it cannot see. The policy: an autopilot that steers for the
berth and ends up beside it, because it does not know the current. A corrector learns from docking or not.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np
import torch

import robot_rl

POSITION, BERTH = "observation.state", "observation.environment_state"


class Dock(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """A boat in the plane; see sim/template_task.py for a task with physics."""

    features = {key: robot_rl.Feature((2,), "float32", "m") for key in (POSITION, BERTH)}
    boat = robot_rl.ActionGroup("boat", 2, "delta", "position", "world", unit="m", low=(-0.02,), high=(0.02,))
    action_spec = robot_rl.ActionSpec((boat,), rate_hz=10.0)
    task_text, max_steps, control_hz = "dock the boat", 20, 10.0
    observation_space = gymnasium.spaces.Dict(
        {POSITION: gymnasium.spaces.Box(-1, 1, (2,)), BERTH: gymnasium.spaces.Box(-1, 1, (2,))}
    )
    action_space = gymnasium.spaces.Box(-0.02, 0.02, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.position, self.berth = self.np_random.uniform(-0.03, 0.03, (2, 2))
        angle, speed = self.np_random.uniform((0, 0), (2 * np.pi, 0.003))
        self.current = speed * np.array([np.cos(angle), np.sin(angle)])  # metres per step, never observed
        return self.observe(), {"success": False}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        self.steps += 1
        self.position = self.position + np.clip(action, -0.02, 0.02) + self.current
        success = bool(np.linalg.norm(self.berth - self.position) < 0.004)
        late = not success and self.steps >= self.max_steps
        return self.observe(), float(success), success, late, {"success": success}

    def observe(self) -> dict[str, np.ndarray]:
        return {POSITION: self.position.astype(np.float32), BERTH: self.berth.astype(np.float32)}


class Autopilot(torch.nn.Module, robot_rl.Policy):
    """Goes a third of the way at each step; see policies/template_policy.py for every detail."""

    spec = robot_rl.PolicySpec(
        name="autopilot", features=Dock.features, action_spec=Dock.action_spec,
        observation_steps=1, horizon=1, executed_steps=1, first_action=0, rate_hz=10.0,
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("share", torch.tensor(0.3))

    def chunk(
        self, request: robot_rl.ChunkRequest, noise: object = None, condition: object = None
    ) -> torch.Tensor:
        position, berth = request.observation[POSITION], request.observation[BERTH]
        return torch.clamp(self.share * (berth - position), -0.02, 0.02)  # (B, 1, 2): one action per chunk

    def hash(self) -> str:
        return robot_rl.policy_hash(self)

    def payload(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        return cls()


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/dock"))
    parser.add_argument("--env-steps", type=int, default=3000)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args(words)

    policy, task = args.out / "policy", "refine_my_task:Dock"
    robot_rl.save_policy(Autopilot(), policy)
    config = robot_rl.RefineConfig(
        policy=policy,
        task=task,
        out=args.out / "refined",
        env_steps=args.env_steps,
        warmup_steps=args.env_steps // 4,
        scale_fraction=0.5,
        updates_per_step=0.5,
    )
    refined = robot_rl.refine_policy(config)

    test = robot_rl.EvaluateConfig(policy, task=task, episodes=args.episodes, workers=1)
    before = robot_rl.evaluate_policy(test)
    after = robot_rl.evaluate_policy(replace(test, refiner=(refined,)))
    gain = robot_rl.paired_difference(before.outcomes, after.outcomes)
    print(f"autopilot {before.success_rate:.0%}, refined {after.success_rate:.0%}")
    print(f"difference {gain.value:+.0%}, 95 % interval {gain.interval[0]:+.0%} to {gain.interval[1]:+.0%}")


if __name__ == "__main__":
    from refine_my_task import main as start  # under its import name, so that what is saved is found again

    start()
