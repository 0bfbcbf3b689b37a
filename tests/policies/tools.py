"""Small policies for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from data.features import Feature
from data.statistics import compute_statistics
from hardware.action_spec import ActionGroup, ActionSpec
from policies.context import TensorContext
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from policies.policy import PolicySpec, Supports
from policies.request import ChunkRequest
from policies.variance_preserving import VariancePreservingPolicy

A = 3
S = 5
FEATURES = {
    "observation.state": Feature((S,), "float32", names=("a", "b", "c", "d", "e")),
    "observation.tactile.left": Feature((2, 2, 3), "float32", "N"),
    "observation.images.front": Feature((12, 20, 3), "uint8"),
    "observation.position": Feature((A,), "float32", "m"),
}
SPEC = ActionSpec(
    (ActionGroup("arm", A, "delta", "position", "base", unit="m", low=(-0.02,), high=(0.02,)),), 20.0
)
SMALL = FlowConfig(
    inputs=("observation.state",),
    horizon=6,
    executed_steps=3,
    hidden=16,
    layers=2,
    frequencies=4,
    steps=4,
    image_size=(8, 8),
    image_features=4,
    text_vocabulary=16,
    text_features=4,
)


def statistics(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    arrays = {k: rng.normal(1.0, 2.0, (50, *f.shape)) for k, f in FEATURES.items() if f.dtype == "float32"}
    arrays["action"] = rng.normal(0.001, 0.01, (50, A))
    return compute_statistics(arrays, FEATURES)


def flow_policy(seed: int = 0, **changes: object) -> FlowPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = FlowPolicy(replace(SMALL, **changes), FEATURES, SPEC)
    return policy.fit(statistics())


def request(rows: int, *, steps: int = 1, seed: int = 0, **more: object) -> ChunkRequest:
    generator = torch.Generator().manual_seed(seed)
    observation: dict = {
        k: torch.randn(rows, steps, *f.shape, generator=generator)
        if f.dtype == "float32"
        else torch.randint(0, 256, (rows, steps, *f.shape), generator=generator, dtype=torch.uint8)
        for k, f in FEATURES.items()
    }
    observation["task"] = [("Put the peg in", "Open the drawer")[row % 2] for row in range(rows)]
    return ChunkRequest(observation, **more)  # type: ignore[arg-type]


class ConstantVelocity(nn.Module, VariancePreservingPolicy):
    """A DDIM policy whose network is a fixed smooth function, to compare with the plain recurrence."""

    def __init__(self, alpha_bars: tuple[float, ...] = (0.02, 0.2, 0.55, 0.9, 1.0)) -> None:
        super().__init__()
        self.table = torch.tensor(alpha_bars)
        self._spec = PolicySpec(
            "ddim", {}, SPEC, 1, 4, 2, 0, 20.0, Supports(noise=True, velocity=True, gradients=True)
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def encode(self, observation, condition=None) -> TensorContext:
        return TensorContext({"state": observation["observation.state"][:, -1, :1, None]})

    def alpha_bars(self, steps=None) -> Tensor:
        return self.table

    def predict(self, native: Tensor, alpha_bar: Tensor, context) -> Tensor:
        return torch.tanh(1.3 * native + context["state"]) * (1.1 - alpha_bar[:, None, None])

    def scheduler_step(self, index, native, prediction, alpha_bars, noise) -> Tensor:
        now, then = alpha_bars[index], alpha_bars[index + 1]
        clean = (native - (1 - now).sqrt() * prediction) / now.sqrt()
        return then.sqrt() * clean + (1 - then).sqrt() * prediction

    def decode(self, x: Tensor, context) -> Tensor:
        return 0.01 * x

    def encode_action(self, action: Tensor, context) -> Tensor:
        return action / 0.01

    def hash(self) -> str:
        return "fixed"
