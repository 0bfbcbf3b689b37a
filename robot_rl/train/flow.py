"""Behaviour cloning of the native flow policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from data.statistics import compute_statistics
from policies import checkpoint
from policies.flow import FlowPolicy
from policies.flow_config import TASK, FlowConfig
from robot_rl.train.kinds import WindowShape

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from policies.request import ActionBatch
    from robot_rl.train.demonstrations import Demonstrations
    from robot_rl.train.windows import TensorWindows


class FlowCloning:
    """Trains a `FlowPolicy`; see `robot_rl.train.kinds.Cloning`.

    Args:
        network: what it reads and how large it is.
        constant: what becomes of dimensions that hardly move in the data.
        start: policy to go on from, with its shape and normalisation; its settings replace `network`.
        seed: of the weights.

    Raises:
        TypeError: if `start` is another kind of policy.
    """

    def __init__(
        self, network: FlowConfig, *, constant: Literal["clamp", "refuse"], start: Path | None, seed: int
    ) -> None:
        self._start = None if start is None else checkpoint.load(start)
        if self._start is not None and not isinstance(self._start, FlowPolicy):
            kind = type(self._start).__name__
            raise TypeError(f"start is {start}, a {kind}: training goes on from a FlowPolicy")
        self._network = network if self._start is None else self._start.config
        self._constant: Literal["clamp", "refuse"] = constant
        self._seed = seed

    @property
    def shape(self) -> WindowShape:
        """What it learns from."""
        own = self._network
        return WindowShape(own.inputs, own.image_size, own.observation_steps, own.horizon, own.first_action)

    def build(self, demos: Demonstrations, windows: TensorWindows) -> FlowPolicy:
        """Return the policy to train: a student of `start`, or random weights with fitted normalisers."""
        if isinstance(self._start, FlowPolicy):
            return self.copy(self._start)
        network = self._filled_in(demos)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            policy = FlowPolicy(network, demos.features, demos.action_spec)
        vectors = [key for key, feature in demos.features.items() if not feature.is_image]
        arrays = {key: windows.used(key) for key in (*vectors, "action")}
        if network.relative_to is not None:
            arrays["action"] = _relative_actions(windows, network.relative_to)
        return policy.fit(compute_statistics(arrays, demos.features), constant=self._constant)

    def copy(self, model: FlowPolicy) -> FlowPolicy:
        """Return a student with the same weights."""
        student = model.student("copy")
        assert isinstance(student, FlowPolicy)
        return student

    def policy(self, model: FlowPolicy) -> FlowPolicy:
        """Return the model, which is the policy."""
        return model

    def loss(self, model: FlowPolicy, batch: ActionBatch, generator: torch.Generator) -> Tensor:
        """Return the mean flow-matching loss."""
        noise = torch.randn(batch.action.shape, generator=generator).to(model.device)
        sigma = model.draw_sigma(len(batch.action), generator)
        return model.flow_loss(batch, noise=noise, sigma=sigma).mean()

    def save(self, model: FlowPolicy, run: Path) -> None:
        """Write the policy into the run's folder."""
        checkpoint.save(model, run)

    def _filled_in(self, demos: Demonstrations) -> FlowConfig:
        """The configuration with its inputs filled in."""
        if self._network.inputs:
            return self._network
        tasks = {trajectory.task for trajectory in demos.trajectories}
        text = (TASK,) if len(tasks) > 1 else ()
        return replace(self._network, inputs=(*sorted(demos.features), *text))


def _relative_actions(windows: TensorWindows, key: str) -> NDArray[np.float32]:
    """All chunk entries minus their origin: statistics of absolute actions would not fit them."""
    batch = windows.batch(torch.arange(len(windows)))
    origin = batch.observation[key]
    assert isinstance(origin, torch.Tensor)
    return np.asarray((batch.action - origin[:, -1:])[windows.mask].numpy())
