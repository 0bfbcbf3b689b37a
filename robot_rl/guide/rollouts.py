"""Rollouts on training seeds, kept in the run: the same whether they were interrupted or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sim
from data.store import EpisodeStore
from hardware.clock import SimulatedClock
from robot_rl.control import ControlLoop, LoopConfig, episode_name
from robot_rl.progress import stage
from robot_rl.seeds import TRAINING_SEEDS
from sim.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.guide.config import GuideConfig
    from robot_rl.refiner import Refiner

STREAM = 2
"""Keeps these rollouts' noise apart from evaluation's and from other methods' on the same seeds."""
_SEEDS_PER_RUN = 1_000_000


class Rollouts:
    """Collects episodes of a policy on a task, wave by wave, each seed used once in a run.

    Args:
        config: task, seed and rows.
        policy: what acts.
    """

    def __init__(self, config: GuideConfig, policy: Policy) -> None:
        self._config, self._policy = config, policy
        self._envs = [sim.make(config.task, **config.task_arguments) for _ in range(config.rows)]
        self._task = task_of(self._envs[0], "max_steps")
        self.wave = 0

    def store(self, path: Path) -> EpisodeStore:
        """Open a store that says what the task's observations and actions mean."""
        return EpisodeStore(path, features=self._task.features, action_spec=self._task.action_spec.to_json())

    def run(self, refiner: Refiner) -> list[Episode]:
        """Run one wave on the next seeds and return its episodes."""
        seeds = self._seeds()
        self.wave += 1
        exploring = LoopConfig(deterministic=False, stream=STREAM)
        return ControlLoop(self._envs, self._policy, refiner, exploring, clock=SimulatedClock()).run(seeds)

    def collect(
        self,
        store: EpisodeStore,
        waves: int,
        refiner: Callable[[int], Refiner],
        *,
        name: str,
        successes: int | None = None,
    ) -> list[Episode]:
        """Run waves until there are enough episodes, or take from the store what was run before.

        Args:
            store: where episodes are kept; an interrupted collection is gone on with.
            waves: most waves.
            refiner: gives what refines the policy in each wave, by its number from 0.
            name: of the stage.
            successes: end with the episode that is this success; those after it are not kept.

        Returns:
            The episodes in the order of their seeds.
        """
        found: list[Episode] = []
        solved = 0
        with stage(name, waves) as reporter:
            for number in range(waves):
                for episode in self._wave(store, refiner(number)):
                    if episode.id not in store:
                        store.write(episode)
                    found.append(episode)
                    solved += episode.success
                    if successes is not None and solved >= successes:
                        break
                reporter.advance(1, f"{solved} of {len(found)} succeeded")
                if successes is not None and solved >= successes:
                    break
        return found

    def _wave(self, store: EpisodeStore, refiner: Refiner) -> list[Episode]:
        names = [episode_name(self._envs[0], seed, STREAM) for seed in self._seeds()]
        if all(name in store for name in names):
            self.wave += 1
            return [store.read(name) for name in names]
        return self.run(refiner)

    def _seeds(self) -> range:
        config = self._config
        first = TRAINING_SEEDS + config.seed * _SEEDS_PER_RUN + self.wave * config.rows
        return range(first, first + config.rows)
