"""Refining a frozen policy with a residual corrector, learned off-policy beside collection.

What acts is in `robot_rl.correct.residual`, what learns in `robot_rl.correct.residual_learner`, and
everything else in `robot_rl.online`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from robot_rl.correct.exploration import CorrelatedNoise, reach
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from robot_rl.learn.spread import mean_and_spread
from robot_rl.online import refine_online
from robot_rl.online_config import OnlineConfig
from robot_rl.refiner import Refiner
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from data.features import Features
    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.learn.process import Factory
    from sim.task import Task


@dataclass(frozen=True)
class RefineConfig(OnlineConfig):
    """A refinement by a residual; its warm-up is base rollouts with random corrections."""

    scale_fraction: float = 0.8
    """Greatest correction, as a share of the base's reach: see `reach`."""
    history_keys: tuple[str, ...] = ()
    """Observation keys whose past is read; chosen from what the task gives when empty."""
    zeroed: tuple[str, ...] = ()
    """Observation keys read as zeros, to measure what a sensor is worth."""
    learner: ResidualLearnerConfig = field(default_factory=ResidualLearnerConfig)
    """Hyper-parameters of the updates."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        if not self.updates_per_step <= 1:
            raise ValueError(f"updates_per_step is {self.updates_per_step}; it must lie in (0, 1].")
        if not 0 < self.scale_fraction <= 1:
            raise ValueError(f"scale_fraction is {self.scale_fraction}; it must lie in (0, 1].")


def refine(config: RefineConfig) -> Path:
    """Refine a policy with a residual; see `robot_rl.online.refine_online`."""
    return refine_online(config, "residual", ResidualRecipe)


class ResidualRecipe:
    """What the residual brings to the online skeleton; see `robot_rl.online.Recipe`."""

    part = ResidualCorrector
    effect = "residual_rms"
    overlapped = True

    def __init__(self, config: RefineConfig, policy: Policy, task: Task) -> None:
        self._config, self._spec = config, policy.spec
        self._inputs = _inputs(config, task.features)
        self._scale: NDArray[np.float64] = np.zeros(policy.spec.action_spec.size)

    def warm_up(self, episodes: Sequence[Episode]) -> Refiner:
        """Return nothing for the first wave, then random corrections within the base's reach."""
        if not episodes:
            return Refiner()
        return Refiner(correct=CorrelatedNoise(self._learn_scale(episodes)))

    def build(self, episodes: Sequence[Episode]) -> ResidualCorrector:
        """Return a corrector that changes nothing yet."""
        scale = self._learn_scale(episodes)
        told = TaskTexts.of((episode.task for episode in episodes), reads_task=self._spec.reads_task)
        inputs = replace(self._inputs, texts=told.texts)
        x = np.concatenate([inputs.recorded(episode) for episode in episodes]).astype(np.float64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._config.seed)
            network = ResidualNetwork(ResidualConfig(inputs), *mean_and_spread(x), scale, 2 * scale + 1e-6)
        return ResidualCorrector(network)

    def refiner(self, part: ResidualCorrector) -> Refiner:
        """Return the refiner that corrects each step."""
        return Refiner(correct=part)

    def learner(self, part: ResidualCorrector, capacity: int) -> Factory:
        """Return what builds the learner."""
        return functools.partial(
            ResidualLearner,
            part.network,
            replace(self._config.learner, seed=self._config.seed),
            executed_steps=self._spec.executed_steps,
            capacity=capacity,
            device=self._config.device,
        )

    def measure(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Return size and saturation of the corrections."""
        residual = np.concatenate(
            [e.extra["residual"] for e in episodes if "residual" in e.extra] or [np.zeros((1, 1))]
        )
        return {
            "residual_rms": float(np.sqrt(np.mean(residual**2))),
            "residual_saturated": float(np.mean(np.abs(residual) > 0.95)),
        }

    def _learn_scale(self, episodes: Sequence[Episode]) -> NDArray[np.float64]:
        """Greatest correction per dimension, (A,): a share of the base's reach in its first waves."""
        if not self._scale.any():
            actions = np.concatenate([episode.action_base for episode in episodes])
            self._scale = self._config.scale_fraction * reach(actions, self._spec.action_spec)
        return self._scale


def _inputs(config: RefineConfig, features: Features) -> InputConfig:
    """What the residual reads of the task's features: all but pictures."""
    wanted = ("observation.environment_state", "observation.wrench")
    inputs = InputConfig(
        keys=tuple(key for key in features if not key.startswith("observation.images.")),
        history_keys=config.history_keys or tuple(key for key in wanted if key in features),
        zeroed=config.zeroed,
    )
    inputs.width(features, 0)  # refuses keys that the task does not give
    return inputs
