"""Rollouts of a policy and a refiner on one task, wave by wave, kept in an episode store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sim
from data.store import EpisodeStore
from hardware.clock import SimulatedClock
from robot_rl.control import ControlLoop, LoopConfig, episode_name
from robot_rl.seeds import TRAINING_SEEDS
from sim.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.method_config import MethodConfig
    from robot_rl.refiner import Refiner

STREAM = 1
"""Keeps refinement's noise apart from evaluation's on the same seeds."""


class Rollouts:
    """Collects waves of episodes on training seeds, each wave on seeds of its own.

    Args:
        config: Names the task, its settings and the seed.
        policy: The frozen base.
        folder: Of the episode store.
        rows: Episodes of a wave, side by side.

    Attributes:
        store: Where the episodes are.
        task: The task of the environments.
        most_steps: Environment steps that a wave may take.
    """

    def __init__(self, config: MethodConfig, policy: Policy, folder: Path, rows: int) -> None:
        self._policy, self._rows = policy, rows
        self._first_seed = TRAINING_SEEDS + config.seed * 1_000_000
        self._envs = [sim.make(config.task, **config.task_arguments) for _ in range(rows)]
        self.store = EpisodeStore(folder)
        self.task = task_of(self._envs[0], "max_steps")
        self.most_steps = rows * int(self.task.max_steps)

    def wave(
        self, number: int, refiner: Refiner, on_step: Callable[[int], None] | None = None
    ) -> list[Episode]:
        """Run and store one wave, exploring; see `run`."""
        episodes = self.run(number, refiner, on_step)
        for episode in episodes:
            self.store.write(episode)
        return episodes

    def run(
        self, number: int, refiner: Refiner, on_step: Callable[[int], None] | None = None
    ) -> list[Episode]:
        """Run one wave, exploring, without storing it.

        Args:
            number: Of the wave, from 0; its seeds follow from it.
            refiner: What acts besides the base.
            on_step: See `ControlLoop.run`.
        """
        exploring = LoopConfig(deterministic=False, stream=STREAM)
        loop = ControlLoop(self._envs, self._policy, refiner, exploring, clock=SimulatedClock())
        return loop.run(self._seeds(number), on_step=on_step)

    def names(self, number: int) -> list[str]:
        """Ids of the episodes of a wave.

        Args:
            number: Of the wave, from 0.
        """
        return [episode_name(self._envs[0], seed, STREAM) for seed in self._seeds(number)]

    def _seeds(self, number: int) -> range:
        first = self._first_seed + number * self._rows
        return range(first, first + self._rows)

    def keep_only(self, known: Collection[str]) -> None:
        """Remove episodes that a checkpoint does not know; they are collected again."""
        for name in self.store.ids() if self.store.exists else ():
            if name not in known:
                self.store.remove(name)
