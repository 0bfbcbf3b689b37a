"""A policy and corrector small enough to work out by hand, and an environment that shows them everything."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from policies.policy import Policy, PolicySpec, Supports
from robot_rl.correct.corrector import Correction, Corrector

SPEC = ActionSpec(
    (ActionGroup("arm", 2, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,)),), 10.0
)
FEATURES = {
    "observation.state": Feature((2,), "float32", "m"),
    "observation.wrench": Feature((1,), "float32", "N"),
}


class CountingEnv(gymnasium.Env[Any, Any]):
    """State is the sum of actions; ends with success when the first entry passes the seed's goal."""

    features = FEATURES
    action_spec = SPEC
    task_text = "count"
    max_steps = 10

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.goal = 1.0 + (seed or 0) % 7 if not (options or {}).get("endless") else np.inf
        self.state, self.steps = np.zeros(2), 0
        return self._observe(), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state = self.state + action
        self.steps += 1
        success = bool(self.state[0] >= self.goal)
        info = {"success": success, "contact_force_n": float(self.steps)}
        return self._observe(), float(success), success, not success and self.steps >= self.max_steps, info

    def _observe(self) -> dict[str, np.ndarray]:
        return {
            "observation.state": self.state.astype(np.float32),
            "observation.wrench": np.array([self.steps], np.float32),
        }


class RampPolicy(Policy):
    """Chunk i of a row is 0.1 * (number of calls) + 0.01 * position, plus a tenth of its noise."""

    def __init__(self, horizon: int = 4, executed: int = 3, noise_share: float = 0.0) -> None:
        self.calls: list[Any] = []
        self.noise_share = noise_share
        self._spec = PolicySpec(
            "ramp", {"observation.state": FEATURES["observation.state"]}, SPEC, 1, horizon, executed, 0, 10.0,
            Supports(noise=True),
        )  # fmt: skip

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def chunk(self, request: Any, noise: Any = None, condition: Any = None) -> torch.Tensor:
        self.calls.append(request)
        rows = len(request.observation["observation.state"])
        ramp = 0.1 * len(self.calls) + 0.01 * torch.arange(self._spec.horizon, dtype=torch.float32)
        return ramp[None, :, None].expand(rows, -1, 2) + self.noise_share * noise

    def hash(self) -> str:
        return "ramp"


class Shift(Corrector):
    """Adds the same amount to every action, and remembers what it was asked."""

    history_keys = ("observation.wrench",)
    history_length = 2

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.past: list[tuple[float, float]] = []

    def correct(self, request: Any, gain: float = 1.0) -> Correction:
        history = request.history
        self.past.append(
            (float(history.observation("observation.wrench", 2)[0, 0]), float(history.correction(1)[0, 0]))
        )
        return Correction(request.base_action + gain * self.amount)
