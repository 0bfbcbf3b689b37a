"""The one skeleton of methods that learn online: collect a wave, learn beside it, repeat; then save.

It owns waves, episode store, learner process, rounds, checkpoints, resume, logging and the proof that the
base stayed as it was. What a method brings is a `robot_rl.recipe.Recipe`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import save_file

from data.config import to_dict
from policies.checkpoint import read_tensors
from robot_rl.learn.process import LearnerProcess
from robot_rl.methods import check_unchanged, load_base
from robot_rl.online_config import check_steps
from robot_rl.parts import save_refiner, version_of
from robot_rl.progress import stage
from robot_rl.refine_check import concern
from robot_rl.rollouts import Rollouts
from robot_rl.runs import RunDirectory
from robot_rl.threads import one_torch_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.methods import Method
    from robot_rl.online_config import OnlineConfig
    from robot_rl.progress import Stage
    from robot_rl.recipe import ActingPart, Recipe
    from robot_rl.refiner import Refiner
    from robot_rl.runs import Checkpoint
    from sim.task import Task


type MakeRecipe[Config: OnlineConfig, Part: ActingPart] = Callable[[Config, Policy, Task], Recipe[Part]]


@dataclass
class Progress:
    """Where the run stands; everything a checkpoint needs besides tensors."""

    wave: int = 0
    env_steps: int = 0
    given: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    pending_steps: int = 0


def refine_online[Config: OnlineConfig, Part: ActingPart](
    config: Config, method: str | Method, make: MakeRecipe[Config, Part]
) -> Path:
    """Refine a policy online; the base's weights do not change.

    Args:
        config: What to refine and how.
        method: Says what the base must support; see `robot_rl.methods.load_base`.
        make: Makes the recipe from the configuration, the base and the task.

    Returns:
        The run directory; its folder `refiner` is what `--refiner` loads.

    Raises:
        RuntimeError: The base's hash changed during the run.
    """
    settings = to_dict(replace(config, resume=False, wandb=False))
    directory = RunDirectory.create(
        config.out, settings, kind="refine", resume=config.resume, wandb=config.wandb
    )
    with directory as run, one_torch_thread():
        return OnlineRun(config, run, method, make).run()


class OnlineRun[Config: OnlineConfig, Part: ActingPart]:
    """One refinement in its run directory."""

    def __init__(
        self, config: Config, run: RunDirectory, method: str | Method, make: MakeRecipe[Config, Part]
    ) -> None:
        self.config, self._run = config, run
        self.policy = load_base(config, method)
        self._base_hash = self.policy.hash()
        self._rollouts = Rollouts(config, self.policy, run.path / "episodes", config.rows)
        self.recipe = make(config, self.policy, self._rollouts.task)  # before the warm-up, which is long
        check_steps(config, self._rollouts.most_steps)
        self._started = time.monotonic()

    def run(self) -> Path:
        """Warm up, refine, save; see `refine_online`."""
        if (self._run.path / "result.json").exists():
            return self._run.path
        with stage("Refining", self.config.env_steps) as reporter:
            checkpoint = self._run.resumed
            at = Progress(**checkpoint.manifest["progress"]) if checkpoint else Progress()
            self._rollouts.keep_only({*at.given, *at.pending})
            part, state = self._restore(checkpoint) if checkpoint else (self._warm_up(at, reporter), None)
            part.network.to(self.config.device)
            capacity = 2 * self.config.env_steps + self._rollouts.most_steps
            factory, store = self.recipe.learner(part, capacity), self._rollouts.store.path
            with LearnerProcess(factory, store, episodes=at.given, state=state) as learner:
                self._rounds(learner, part, at, reporter)
        return self._finish(part, at)

    def _wave(self, refiner: Refiner, at: Progress, reporter: Stage) -> list[Episode]:
        """Collect and store one wave of episodes."""
        episodes = self._rollouts.wave(at.wave, refiner, reporter.advance)
        at.wave += 1
        at.env_steps += sum(map(len, episodes))
        at.pending += [episode.id for episode in episodes]
        at.pending_steps += sum(map(len, episodes))
        return episodes

    def _warm_up(self, at: Progress, reporter: Stage) -> Part:
        """Roll out the base and build the part from what was seen."""
        episodes: list[Episode] = []
        while not episodes or at.env_steps < self.config.warmup_steps:
            episodes += self._wave(self.recipe.warm_up(episodes), at, reporter)
            self._log(at, episodes[-self.config.rows :], {})
        return self.recipe.build(episodes)

    def _rounds(self, learner: LearnerProcess, part: Part, at: Progress, reporter: Stage) -> None:
        """Each round learns from the last wave and collects the next, side by side where it may be."""
        config, rounds = self.config, 0
        while True:
            more = at.env_steps + self._rollouts.most_steps <= config.env_steps
            save = (rounds + 1) % config.checkpoint_rounds == 0
            given = at.pending
            learner.begin(
                given, round(at.pending_steps * config.updates_per_step), with_state=save or not more
            )
            at.given, at.pending, at.pending_steps = at.given + given, [], 0
            beside = self.recipe.overlapped and more
            episodes = self._wave(self._refiner(part), at, reporter) if beside else []
            found = learner.collect()
            part.network.load_state_dict(found.weights)
            if more and not beside:
                episodes = self._wave(self._refiner(part), at, reporter)
            rounds += 1
            if episodes:
                self._log(at, episodes, found.metrics)
            if save or not more:  # the last one keeps the critics that a viewer shows
                self._checkpoint(part, found.state, at)
            if not more:
                return

    def _refiner(self, part: Part) -> Refiner:
        """The refiner with the network's present weights, and their hash as its version."""
        refiner = replace(self.recipe.refiner(part), base_hash=self._base_hash)
        return replace(refiner, version=version_of(refiner))

    def _log(self, at: Progress, episodes: Sequence[Episode], metrics: Mapping[str, float]) -> None:
        self._run.log(
            at.env_steps,
            {
                "episodes": at.wave * self.config.rows,
                "success": float(np.mean([episode.success for episode in episodes])),
                **self.recipe.measure(episodes),
                "seconds": time.monotonic() - self._started,
                **metrics,
            },
        )

    def _checkpoint(self, part: Part, state: Mapping[str, Tensor], at: Progress) -> None:
        saved = self._run.checkpoint(
            at.env_steps, base_hash=self._base_hash, progress=vars(at), network=part.payload()
        )
        with saved as folder:
            save_file(dict(state), folder / "learner.safetensors")
            tensors = {key: value.clone() for key, value in part.network.state_dict().items()}
            save_file(tensors, folder / "actor.safetensors")

    def _restore(self, checkpoint: Checkpoint) -> tuple[Part, dict[str, Tensor]]:
        tensors = read_tensors(checkpoint.path / "actor.safetensors")
        part = self.recipe.part.from_payload(checkpoint.manifest["network"], tensors)
        return part, read_tensors(checkpoint.path / "learner.safetensors")

    def _finish(self, part: Part, at: Progress) -> Path:
        after = check_unchanged(self.policy, self._base_hash)
        facts = {"task": self.config.task, "env_steps": at.env_steps, "policy": str(self.config.policy)}
        saved = save_refiner(self._run.path / "refiner", self._refiner(part), facts)
        self._run.write_json("result.json", self._result(at, saved.version, after))
        return self._run.path

    def _result(self, at: Progress, version: str, base_hash: str) -> dict[str, Any]:
        config = self.config
        return {
            "env_steps": at.env_steps,
            "episodes": at.wave * config.rows,
            "wall_seconds": time.monotonic() - self._started,
            "base_hash_before": self._base_hash,
            "base_hash_after": base_hash,
            "refiner_version": version,
            "concern": concern(
                self._run.metrics(),
                rows=config.rows,
                warmup_steps=config.warmup_steps,
                env_steps=at.env_steps,
                effect=self.recipe.effect,
            ),
        }
