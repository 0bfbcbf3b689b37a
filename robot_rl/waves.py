"""Waves: seeds that run as one batch, and the process that runs them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from robot_rl.base_policy import policy_for
from robot_rl.control import TaskMisfitError, run_wave
from robot_rl.made_for import made_for
from robot_rl.threads import one_torch_thread

if TYPE_CHECKING:
    from data.records import Episode
    from robot_rl.evaluate import EvaluateConfig


@dataclass(frozen=True)
class EpisodeResult:
    """Outcome of one seed."""

    seed: int
    success: bool
    steps: int
    """control steps until the episode ended"""
    text: str
    """the task in words, as the policy was told"""
    facts: Mapping[str, float] = field(default_factory=dict)
    """the task's diagnostics at the end, the largest contact force in N where it is measured, and the share
    of steps in which each hook that says so was active"""

    def to_json(self) -> dict[str, Any]:
        """JSON values: seed, success, steps, text and the facts side by side."""
        own = {"seed": self.seed, "success": self.success, "steps": self.steps, "text": self.text}
        return {**own, **self.facts}


@dataclass(frozen=True)
class Wave:
    """Seeds that run as one batch."""

    seeds: tuple[int, ...]
    kept: int
    """how many of them count, from the first; the rest fills the batch up"""
    record: frozenset[int]
    """seeds whose episodes come back whole"""


@dataclass(frozen=True)
class WaveResult:
    """What a worker hands back."""

    results: tuple[EpisodeResult, ...]
    recorded: tuple["Episode", ...]
    base_hash: str


def split_waves(config: "EvaluateConfig") -> Iterator[Wave]:
    """Cut the seeds into waves of ``config.batch``."""
    for first in range(config.seed, config.seeds.stop, config.batch):
        seeds = tuple(range(first, first + config.batch))
        kept = min(config.batch, config.seeds.stop - first)
        yield Wave(seeds, kept, frozenset(config.record) & frozenset(seeds[:kept]))


class WaveRunner:
    """Runs waves in one process; loads policy, refiner and environments once."""

    def __init__(self, config: "EvaluateConfig") -> None:
        import sim
        from robot_rl.parts import load_refiners
        from sim.task import task_of

        self._gain, self._delay, self._folder = config.gain, config.delay, config.policy
        self._refiner = load_refiners(config.refiner, device=config.device) if config.refiner else None
        self._envs = [sim.make(config.task, **config.task_arguments) for _ in range(config.batch)]
        self._policy = policy_for(config.policy, task_of(self._envs[0]), config.device)

    def __call__(self, wave: Wave) -> WaveResult:
        """Run one wave."""
        before = self._policy.hash()
        try:
            with one_torch_thread():
                episodes = run_wave(
                    self._envs,
                    wave.seeds,
                    self._policy,
                    self._refiner,
                    gain=self._gain,
                    delay=self._delay,
                )
        except TaskMisfitError as error:
            task = made_for(self._folder) or "with the name of the task it was made for"
            raise TaskMisfitError(f"{str(error).rstrip('.')}. Give --task {task}.") from error
        if self._policy.hash() != before:
            raise RuntimeError("the base policy's weights changed during evaluation; the result is void")
        kept = episodes[: wave.kept]
        return WaveResult(
            results=tuple(summarise(episode) for episode in kept),
            recorded=tuple(episode for episode in kept if episode.seed in wave.record),
            base_hash=before,
        )


def summarise(episode: "Episode") -> EpisodeResult:
    """Outcome of a recorded episode."""
    assert episode.seed is not None, "evaluation resets with a seed"
    facts = {name: float(value) for name, value in episode.metadata.items() if _is_number(value)}
    if "contact_force_n" in episode.extra:
        facts["max_contact_force_n"] = float(episode.extra["contact_force_n"].max())
    facts |= {f"{key}_share": float(v.mean()) for key, v in episode.extra.items() if key.endswith(".active")}
    return EpisodeResult(episode.seed, episode.success, len(episode), episode.task, facts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
