"""Rollouts on training seeds, kept in the run: the same whether they were interrupted or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.store import EpisodeStore
from robot_rl.progress import stage
from robot_rl.rollouts import Rollouts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.method_config import MethodConfig
    from robot_rl.refiner import Refiner
    from sim.task import Task


class Collector:
    """Collects episodes of a policy on a task, wave by wave, each seed used once in a run.

    Args:
        config: task and seed.
        policy: what acts.
        folder: of the run.
        rows: episodes of a wave, side by side.
    """

    def __init__(self, config: MethodConfig, policy: Policy, folder: Path, rows: int) -> None:
        self._rollouts = Rollouts(config, policy, folder / "episodes", rows)
        self._wave_number = 0

    @property
    def task(self) -> Task:
        """The task of the environments."""
        return self._rollouts.task

    def store(self, path: Path) -> EpisodeStore:
        """Open a store that says what the task's observations and actions mean."""
        return EpisodeStore(path, features=self.task.features, action_spec=self.task.action_spec.to_json())

    def run(self, refiner: Refiner) -> list[Episode]:
        """Run one wave on the next seeds and return its episodes."""
        self._wave_number += 1
        return self._rollouts.run(self._wave_number - 1, refiner)

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
        names = self._rollouts.names(self._wave_number)
        if all(name in store for name in names):
            self._wave_number += 1
            return [store.read(name) for name in names]
        return self.run(refiner)
