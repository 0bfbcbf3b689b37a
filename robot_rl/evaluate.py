"""Success rates on held-out seeds, seed by seed the same for any number of worker processes.

Seeds are cut into waves of one fixed size. A wave runs as one batch, the last one filled up with further
seeds whose episodes are thrown away, so every network call has the same shape and every sum the same order
wherever it runs.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.config import to_dict
from robot_rl.control import LoopConfig, episode_name
from robot_rl.parallel import resolve_workers, run_tasks
from robot_rl.progress import stage
from robot_rl.provenance import config_hash, git_revision, versions
from robot_rl.result_file import check_result_file, write_result_file
from robot_rl.seeds import MOST_ROWS, check_episodes, trained_on
from robot_rl.statistics import wilson_interval
from robot_rl.task_settings import TaskSettings
from robot_rl.waves import EpisodeResult, WaveResult, WaveRunner, split_waves

if TYPE_CHECKING:
    from data.records import Episode
    from data.store import EpisodeStore


@dataclass(frozen=True)
class EvaluateConfig(TaskSettings):
    """Measure the success rate of a policy, alone or refined, on a range of seeds."""

    policy: Path
    """the base policy: its folder, or a LeRobot checkpoint as a folder or hub id"""
    refiner: tuple[Path, ...] = ()
    """folders of what refines it, put together; none measures the base alone"""
    task: str = "peg-insert"
    """task name, Gymnasium id or module:Class"""
    episodes: int = 200
    """number of episodes, one per seed"""
    seed: int = 1000
    """seed of the first episode; the others follow it"""
    workers: int = 0
    """worker processes; 0 is one per core; outcomes do not depend on it"""
    batch: int = 8
    """episodes that run as one batch; outcomes can depend on it in the last bits"""
    gain: float = 1.0
    """share of the correction that is applied, 0 to 1"""
    delay: int = 0
    """control steps that pass while a chunk is computed; the robot goes on with the old one"""
    device: str = "cpu"
    """torch device of the networks"""
    json: Path | None = None
    """file for the result"""
    record: tuple[int, ...] = ()
    """seeds whose whole episodes are kept"""
    record_to: Path | None = None
    """episode store for them"""
    seen_seeds: bool = False
    """also allow seeds that training uses; what is measured is then no held-out success rate"""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        check_episodes(self.episodes)
        if not 1 <= self.batch <= MOST_ROWS:
            raise ValueError(f"batch is {self.batch}, allowed is 1 to {MOST_ROWS}")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, allowed is 0 or more")
        if not self.held_out and not self.seen_seeds:
            raise ValueError(
                f"seeds {self.seeds.start} to {self.seeds.stop - 1} were perhaps trained on "
                f"({trained_on(self.seeds)}): choose lower ones, or give --seen-seeds"
            )
        if not 0.0 <= self.gain <= 1.0:
            raise ValueError(f"gain is {self.gain}, allowed is 0 to 1")
        if self.delay < 0:
            raise ValueError(f"delay is {self.delay}, allowed is 0 or more control steps")
        outside = [seed for seed in self.record if seed not in self.seeds]
        if outside:
            raise ValueError(
                f"record names seeds {outside}, allowed are {self.seeds.start} to {self.seeds.stop - 1}"
            )
        if self.record and self.record_to is None:
            raise ValueError("record names seeds but record_to no folder: give --record-to")

    @property
    def seeds(self) -> range:
        """The seeds that count."""
        return range(self.seed, self.seed + self.episodes)

    @property
    def held_out(self) -> bool:
        """Whether no training uses these seeds."""
        return trained_on(self.seeds) is None


@dataclass(frozen=True)
class Rate:
    """How many of some episodes succeeded."""

    episodes: int
    successes: int

    @property
    def success_rate(self) -> float:
        """Share of successful episodes."""
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the success rate."""
        return wilson_interval(self.successes, self.episodes)

    def to_json(self) -> dict[str, Any]:
        """JSON values, an entry of ``by_text`` in ``evaluate --json``."""
        own = {"episodes": self.episodes, "successes": self.successes}
        return {**own, "success_rate": self.success_rate, "interval": list(self.interval)}


@dataclass(frozen=True)
class EvaluationResult:
    """What :func:`evaluate` found."""

    episodes: tuple[EpisodeResult, ...]
    """in the order of the seeds"""
    base_hash: str
    """of the policy, before and after"""
    wall_seconds: float
    workers: int
    config: Mapping[str, Any]

    @property
    def success_rate(self) -> float:
        """Share of successful episodes."""
        return self._rate.success_rate

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the success rate."""
        return self._rate.interval

    @property
    def by_text(self) -> dict[str, Rate]:
        """What became of each task, by the text that the policy was told, in the texts' order."""
        texts: dict[str, list[bool]] = {}
        for episode in self.episodes:
            texts.setdefault(episode.text, []).append(episode.success)
        return {text: Rate(len(texts[text]), sum(texts[text])) for text in sorted(texts)}

    @property
    def _rate(self) -> Rate:
        return Rate(len(self.episodes), sum(self.outcomes))

    @property
    def outcomes(self) -> list[bool]:
        """Success per seed."""
        return [episode.success for episode in self.episodes]

    def to_json(self) -> dict[str, Any]:
        """JSON values, the shape of ``evaluate --json``."""
        steps = [episode.steps for episode in self.episodes]
        solved = [episode.steps for episode in self.episodes if episode.success]
        return {
            "success_rate": self.success_rate,
            "interval": list(self.interval),
            "by_text": {text: rate.to_json() for text, rate in self.by_text.items()},
            "episodes": [episode.to_json() for episode in self.episodes],
            "median_steps_to_success": statistics.median(solved) if solved else None,
            "timing": {
                "wall_seconds": self.wall_seconds,
                "env_steps": sum(steps),
                "steps_per_second": sum(steps) / self.wall_seconds,
                "workers": self.workers,
            },
            "base_hash": self.base_hash,
            "config": dict(self.config),
            "config_hash": config_hash(self.config),
            "versions": versions(),
            "git_revision": git_revision(),
        }


def evaluate(config: EvaluateConfig) -> EvaluationResult:
    """Run every seed once and count successes, judged by the simulator's true state.

    Args:
        config: what to evaluate. Its ``json`` file and recorded episodes are written.

    Returns:
        the outcome per seed.

    Raises:
        RuntimeError: if the base policy's weights changed while it ran.
    """
    _check_places(config)
    store = _store(config) if config.record else None
    waves = list(split_waves(config))
    workers = resolve_workers(config.workers, len(waves))
    started = time.monotonic()
    found: dict[int, WaveResult] = {}
    name = "Evaluating " + ("the refined policy" if config.refiner else "the base")
    with stage(name, config.episodes) as bar:
        for index, result in run_tasks(functools.partial(WaveRunner, config), waves, workers):
            found[index] = result
            done = [episode.success for wave in found.values() for episode in wave.results]
            bar.update(len(done), f"{sum(done)} of {len(done)} succeeded")
    ordered = [found[index] for index in range(len(waves))]
    evaluation = EvaluationResult(
        episodes=tuple(episode for wave in ordered for episode in wave.results),
        base_hash=_one_hash(ordered),
        wall_seconds=time.monotonic() - started,
        workers=workers,
        config=to_dict(config),
    )
    write_result_file(config.json, evaluation.to_json())
    if store is not None:
        for episode in (episode for wave in ordered for episode in wave.recorded):
            store.write(episode)
    return evaluation


def record_episodes(config: EvaluateConfig, seeds: Sequence[int]) -> list["Episode"]:
    """Run the waves of an evaluation that hold some seeds once more and hand the whole episodes back.

    An evaluation is deterministic, so these are the episodes it counted, at a fraction of the memory of
    keeping all of them.

    Args:
        config: the evaluation.
        seeds: which episodes; all within ``config.seeds``.

    Returns:
        the episodes in the order of ``seeds``.
    """
    chosen = dataclasses.replace(config, record=tuple(seeds), record_to=config.record_to or Path())
    waves = [wave for wave in split_waves(chosen) if wave.record]
    workers = resolve_workers(config.workers, len(waves))
    found: dict[int | None, Episode] = {}
    with stage("Recording episodes", len(waves)) as bar:
        for _, result in run_tasks(functools.partial(WaveRunner, chosen), waves, workers):
            found |= {episode.seed: episode for episode in result.recorded}
            bar.advance()
    return [found[seed] for seed in seeds]


def _one_hash(waves: list[WaveResult]) -> str:
    hashes = {wave.base_hash for wave in waves}
    if len(hashes) != 1:
        raise RuntimeError(
            f"workers loaded different policies ({', '.join(sorted(hashes))}): the folder changed meanwhile"
        )
    return hashes.pop()


def _check_places(config: EvaluateConfig) -> None:
    """Refuse places that cannot be written before the work, not after it."""
    check_result_file(config.json)
    if config.record_to is not None and config.record_to.is_file():
        raise ValueError(f"record_to is {config.record_to}, which is a file: give a folder")


def _store(config: EvaluateConfig) -> "EpisodeStore":
    """Where recorded episodes go; refuses one that holds some of them already before anything is computed."""
    import sim
    from data.store import EpisodeStore
    from sim.task import task_of

    assert config.record_to is not None, "checked with the configuration"
    env = sim.make(config.task, **config.task_arguments)
    task = task_of(env)
    names = [episode_name(env, seed, LoopConfig().stream) for seed in config.record]
    env.close()
    store = EpisodeStore(config.record_to, features=task.features, action_spec=task.action_spec.to_json())
    if there := [name for name in names if name in store]:
        raise ValueError(
            f"record_to is {config.record_to}, which holds {', '.join(there)} already: give another folder"
        )
    return store
