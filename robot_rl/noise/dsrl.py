"""``robot-rl refine dsrl``: choose the noise that the frozen base denoises, learned from success and failure.

What acts is in `robot_rl.noise.steering`, what learns in `robot_rl.noise.learner` and
`robot_rl.noise.aliased_learner`, everything else in `robot_rl.online`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from robot_rl.correct.inputs import InputConfig
from robot_rl.learn.spread import mean_and_spread
from robot_rl.noise.aliased_learner import AliasedLearner
from robot_rl.noise.learner import SacLearner
from robot_rl.noise.learner_config import NoiseLearnerConfig
from robot_rl.noise.network import NoiseNetwork, SteeringConfig
from robot_rl.noise.preflight import RandomChoice, judge_preflight
from robot_rl.noise.space import NoiseSpaceConfig
from robot_rl.noise.steering import SteeredNoise
from robot_rl.online import refine_online
from robot_rl.online_config import OnlineConfig
from robot_rl.refiner import Refiner
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.learn.process import Factory
    from robot_rl.noise.learner import NoiseLearner
    from sim.task import Task

RANDOM = "random noise"
"""Version of the refiner that chooses at random in the warm-up."""


@dataclass(frozen=True)
class DsrlConfig(OnlineConfig):
    """A refinement by the choice of noise. Every second wave of its warm-up chooses at random."""

    env_steps: int = 30_000
    """Most environment steps, warm-up included."""
    updates_per_step: float = 0.5
    """Updates per environment step, so 4 per chunk of 8 steps. The paper: 20 per chunk of 4."""
    variant: Literal["sac", "na"] = "sac"
    """sac: critics of the noise, the base is a black box. na: critics of executed chunks, distilled into one
    of the noise through a second copy of the base; several times the work per update."""
    space: NoiseSpaceConfig = field(default_factory=NoiseSpaceConfig)
    """What of the noise is chosen, and how far."""
    keys: tuple[str, ...] = ()
    """Observation keys that are read; all that the task gives but pictures when empty."""
    sharpness: float = 1.0
    """Power of the noise's spread when nothing explores; 1 acts with the chance it was trained with. More
    hides whether reward taught anything: less chance alone can help a weak base."""
    preflight: Literal["refuse", "warn", "off"] = "refuse"
    """What happens when the base does far worse on random choices than on its own noise."""
    learner: NoiseLearnerConfig = field(default_factory=NoiseLearnerConfig)
    """Hyper-parameters of the updates."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        self.check_range("sharpness", 1, 100)


def dsrl(config: DsrlConfig) -> Path:
    """Refine a policy through its noise; see `robot_rl.online.refine_online`."""
    return refine_online(config, "dsrl", DsrlRecipe)


class DsrlRecipe:
    """What DSRL brings to the online skeleton; see `robot_rl.recipe.Recipe`."""

    part = SteeredNoise
    effect = "refined"
    overlapped = True

    def __init__(self, config: DsrlConfig, policy: Policy, task: Task) -> None:
        self._config, self._spec = config, policy.spec
        vectors = tuple(key for key in task.features if not key.startswith("observation.images."))
        self._inputs = InputConfig(keys=config.keys or vectors, offsets=(), corrections=False)
        width = self._inputs.width(task.features, 0)  # refuses keys that the task does not give
        self._shape = SteeringConfig(
            keys=self._inputs.keys,
            horizon=policy.spec.horizon,
            width=policy.spec.noise_shape[1],
            actions=policy.spec.action_size,
            space=config.space,
            hidden=config.learner.width,
            sharpness=config.sharpness,
        )
        self._random = RandomChoice(NoiseNetwork(self._shape, np.zeros(width), np.ones(width)))

    def warm_up(self, episodes: Sequence[Episode]) -> Refiner:
        """Return nothing and random choices in turn."""
        random = len(episodes) // self._config.rows % 2
        return Refiner(noise=self._random, version=RANDOM) if random else Refiner()

    def build(self, episodes: Sequence[Episode]) -> SteeredNoise:
        """Return a noise policy that changes nothing yet.

        Raises:
            ValueError: The base hardly succeeds on noise of the kind that would be chosen.
        """
        outcomes: dict[bool, list[bool]] = {False: [], True: []}
        for episode in episodes:
            outcomes[episode.refiner_version == RANDOM].append(episode.success)
        judge_preflight(outcomes[False], outcomes[True], mode=self._config.preflight)
        told = TaskTexts.of((episode.task for episode in episodes), reads_task=self._spec.reads_task)
        inputs = replace(self._inputs, texts=told.texts)
        x = np.concatenate([inputs.recorded(episode) for episode in episodes]).astype(np.float64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._config.seed)
            network = NoiseNetwork(replace(self._shape, texts=told.texts), *mean_and_spread(x))
        return SteeredNoise(network)

    def refiner(self, part: SteeredNoise) -> Refiner:
        """Return the refiner that chooses the noise."""
        return Refiner(noise=part)

    def learner(self, part: SteeredNoise, capacity: int) -> Factory:
        """Return what builds the learner of the variant."""
        config = self._config
        made: Callable[..., NoiseLearner] = SacLearner
        if config.variant == "na":
            base = functools.partial(load_frozen, config.policy, config.device)
            made = functools.partial(AliasedLearner, base=base)
        return functools.partial(
            made,
            part.network,
            replace(self._inputs, texts=part.network.config.texts),
            replace(config.learner, seed=config.seed),
            executed_steps=self._spec.executed_steps,
            capacity=capacity,
            device=config.device,
        )

    def measure(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Return whether a noise policy acted, and the size of the noise, 1 for the base's own."""
        noise = [chunk.noise for episode in episodes for chunk in episode.chunks if chunk.noise is not None]
        return {
            "refined": float(any(episode.refiner_version for episode in episodes)),
            "noise_rms": float(np.sqrt(np.mean(np.square(noise)))),
        }


def load_frozen(policy: Path, device: str) -> Policy:
    """Load the base once more, in the process that calls this."""
    from robot_rl import load_policy

    return load_policy(policy, device=device)
