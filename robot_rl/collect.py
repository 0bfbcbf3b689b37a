"""Demonstrations of a task's scripted expert, recorded in parallel, the same for any number of workers."""

import functools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.manifest import atomic_write_text
from data.records import Episode
from data.store import EpisodeStore
from hardware.clock import SimulatedClock
from robot_rl.arbiter import ExpertArbiter
from robot_rl.control import ControlLoop, LoopConfig
from robot_rl.metrics import read_metrics
from robot_rl.parallel import resolve_workers, run_tasks
from robot_rl.progress import stage
from robot_rl.runs import RunDirectory
from robot_rl.seeds import DEMONSTRATION_SEEDS, MOST_SEED, check_episodes
from robot_rl.task_settings import TaskSettings

logger = logging.getLogger(__name__)

# An expert that fails more often than this is broken, and would be tried for ever.
LOWEST_SUCCESS_RATE = 0.1


@dataclass(frozen=True)
class CollectConfig(TaskSettings):
    """Record demonstrations of a task's scripted expert."""

    out: Path
    """folder of the run; the episode store is its sub-folder ``episodes``"""
    task: str = "peg-insert"
    """task name, Gymnasium id or module:Class"""
    episodes: int = 100
    """episodes to keep"""
    seed: int = DEMONSTRATION_SEEDS
    """seed of the first attempt; the others follow it. From the default on no evaluation uses them"""
    keep_failures: bool = False
    """also keep attempts in which the expert failed"""
    workers: int = 0
    """worker processes; 0 is one per core; what is recorded does not depend on it"""
    resume: bool = False
    """go on with an interrupted collection"""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        check_episodes(self.episodes)
        if not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"seed is {self.seed}, allowed is 0 to {MOST_SEED:,}")


@dataclass(frozen=True)
class CollectResult:
    """What was recorded."""

    store: Path
    """the episode store"""
    kept: int
    """episodes in it"""
    failed: int
    """attempts in which the expert failed; dropped unless failures are kept"""
    attempts: int


class ExpertRunner:
    """Runs the expert in one process; builds the environment once."""

    def __init__(self, task: str, options: Mapping[str, Any]) -> None:
        import sim
        from sim.task import task_of

        self._env = sim.make(task, **options)
        self._task = task_of(self._env, "expert")

    def __call__(self, seed: int) -> Episode:
        """Record one attempt; environment and expert follow from the seed alone."""
        # Times of a simulation are simulated, from 0 in each episode: equal seeds give equal episodes.
        loop = ControlLoop(
            [self._env],
            None,
            config=LoopConfig(operator="scripted expert"),
            clock=SimulatedClock(),
            arbiters=[ExpertArbiter(self._task)],
        )
        (episode,) = loop.run([seed])
        return episode


def collect(config: CollectConfig) -> CollectResult:
    """Record demonstrations until ``config.episodes`` are kept.

    The kept ones are the first successful seeds in order, so they depend neither on the number of workers
    nor on interruptions.

    Raises:
        RuntimeError: if the expert nearly always fails.
        RunError: if the folder holds something else.
    """
    with RunDirectory.create(config.out, config, kind="collect", resume=config.resume) as run:
        store = _open_store(config)
        attempts = Attempts(run.path / "attempts.jsonl", config)
        with stage("Collecting demonstrations", config.episodes) as bar:
            bar.update(attempts.kept, attempts.note)
            while seeds := attempts.missing():
                for episode in _record(config, seeds):
                    _keep(episode, store, attempts, config)
                    bar.update(attempts.kept, attempts.note)
        result = CollectResult(store.path, attempts.kept, attempts.failed, len(attempts))
        run.write_json(
            "result.json", {"kept": result.kept, "failed": result.failed, "attempts": result.attempts}
        )
    fate = "kept as well" if config.keep_failures else "dropped"
    logger.info("%d demonstrations kept; %d attempts failed and were %s", result.kept, result.failed, fate)
    return result


class Attempts:
    """Which seeds were tried and whether the expert succeeded, kept in a file.

    Args:
        file: one JSON line per attempt; a line cut off by a killed process is dropped.
        config: how many episodes are wanted, and from which seed on.
    """

    def __init__(self, file: Path, config: CollectConfig) -> None:
        self._file = file
        self._config = config
        self._success: dict[int, bool] = {row["seed"]: row["success"] for row in read_metrics(file, "seed")}
        atomic_write_text(file, "".join(map(self._line, self._success)))

    def __len__(self) -> int:
        return len(self._success)

    @property
    def failed(self) -> int:
        """Attempts in which the expert failed."""
        return list(self._success.values()).count(False)

    @property
    def kept(self) -> int:
        """Episodes that count."""
        return len(self) if self._config.keep_failures else len(self) - self.failed

    @property
    def note(self) -> str:
        """How often the expert failed, in words."""
        return f"{self.failed} of {len(self)} attempts failed"

    def add(self, seed: int, *, success: bool) -> None:
        """Record an attempt whose episode, if it is kept, is safe on disk."""
        self._success[seed] = success
        with self._file.open("a", encoding="utf-8") as file:
            file.write(self._line(seed))

    def missing(self) -> list[int]:
        """Seeds to try next: as many as would do if all of them succeeded, lowest first; empty when done.

        Raises:
            RuntimeError: if the expert nearly always fails.
        """
        tried = max(len(self), 1)
        if (
            len(self) >= 20
            and 1 - self.failed / tried < LOWEST_SUCCESS_RATE
            and not self._config.keep_failures
        ):
            raise RuntimeError(
                f"the expert failed in {self.failed} of {tried} attempts: the task or its expert is broken"
            )
        seeds, wanted, seed = [], self._config.episodes, self._config.seed
        while wanted > 0:
            known = self._success.get(seed)
            if known is None:
                seeds.append(seed)
            wanted -= known is not False or self._config.keep_failures
            seed += 1
        return seeds

    def _line(self, seed: int) -> str:
        return json.dumps({"seed": seed, "success": self._success[seed]}) + "\n"


def _record(config: CollectConfig, seeds: Sequence[int]) -> Iterator[Episode]:
    workers = resolve_workers(config.workers, len(seeds))
    runner = functools.partial(ExpertRunner, config.task, config.task_arguments)
    return (episode for _, episode in run_tasks(runner, seeds, workers))


def _open_store(config: CollectConfig) -> EpisodeStore:
    import sim
    from sim.task import task_of

    env = sim.make(config.task, **config.task_arguments)
    task = task_of(env)
    store = EpisodeStore(
        config.out / "episodes", features=task.features, action_spec=task.action_spec.to_json()
    )
    env.close()
    return store


def _keep(episode: Episode, store: EpisodeStore, attempts: Attempts, config: CollectConfig) -> None:
    assert episode.seed is not None, "attempts are made with a seed"
    # A process killed between the two writes leaves an episode whose attempt is unknown: it is tried again.
    if (episode.success or config.keep_failures) and episode.id not in store:
        store.write(episode)
    attempts.add(episode.seed, success=episode.success)
