"""Refining a frozen policy with a residual corrector: collect a wave, learn beside it, repeat."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file

import sim
from data.config import to_dict
from data.store import EpisodeStore
from hardware.clock import SimulatedClock
from policies.checkpoint import load as load_policy
from policies.checkpoint import read_tensors
from robot_rl.control import ControlLoop, LoopConfig
from robot_rl.correct.exploration import CorrelatedNoise
from robot_rl.correct.inputs import InputConfig
from robot_rl.correct.residual import ResidualConfig, ResidualCorrector, ResidualNetwork
from robot_rl.correct.residual_learner import ResidualLearner, ResidualLearnerConfig
from robot_rl.learn.process import LearnerProcess
from robot_rl.parts import save_refiner, version_of
from robot_rl.progress import stage
from robot_rl.refiner import Refiner
from robot_rl.runs import RunDirectory
from robot_rl.seeds import MOST_ROWS, MOST_SEED, TRAINING_SEEDS
from robot_rl.task_settings import TaskSettings
from robot_rl.threads import one_torch_thread
from sim.task import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from data.features import Features
    from data.records import Episode
    from hardware.action_spec import ActionSpec
    from policies.policy import Policy
    from robot_rl.progress import Stage
    from robot_rl.runs import Checkpoint

STREAM = 1
"""Keeps refinement's noise apart from evaluation's on the same seeds."""
MOST_STEPS = 10_000_000
"""Environment steps of a refinement; its replay holds twice as many rows in memory."""


@dataclass(frozen=True)
class RefineConfig(TaskSettings):
    """A refinement."""

    policy: Path
    """Folder of the frozen base."""
    out: Path
    """Run directory to write."""
    task: str = "peg-insert"
    """Name of the task."""
    env_steps: int = 32_000
    """Most environment steps, warm-up included."""
    warmup_steps: int = 3_000
    """Steps of base rollouts with random corrections before learning starts."""
    rows: int = 8
    """Episodes collected side by side."""
    scale_fraction: float = 0.8
    """Greatest correction, as a share of the base's reach: see `reach`."""
    updates_per_step: float = 1.0
    """Updates per environment step, at most 1."""
    history_keys: tuple[str, ...] = ()
    """Observation keys whose past is read; chosen from what the task gives when empty."""
    zeroed: tuple[str, ...] = ()
    """Observation keys read as zeros, to measure what a sensor is worth."""
    checkpoint_rounds: int = 8
    """Rounds between checkpoints."""
    seed: int = 0
    """Of episodes, weights and sampling."""
    learner: ResidualLearnerConfig = field(default_factory=ResidualLearnerConfig)
    """Hyper-parameters of the updates."""
    device: str = "cpu"
    """Torch device of policy, corrector and learner."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    resume: bool = False
    """Go on from the run's last checkpoint."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        if not 0 < self.updates_per_step <= 1:
            raise ValueError(f"updates_per_step is {self.updates_per_step}; it must lie in (0, 1].")
        if self.warmup_steps >= self.env_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be below env_steps {self.env_steps}.")
        if not 0 < self.scale_fraction <= 1:
            raise ValueError(f"scale_fraction is {self.scale_fraction}; it must lie in (0, 1].")
        for name, low, high in (
            ("env_steps", 1, MOST_STEPS),
            ("warmup_steps", 0, MOST_STEPS),
            ("rows", 1, MOST_ROWS),
            ("checkpoint_rounds", 1, MOST_STEPS),
            ("seed", 0, MOST_SEED),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie in {low} .. {high:,}.")


@dataclass
class _Progress:
    """Where the run stands; everything a checkpoint needs besides tensors."""

    wave: int = 0
    env_steps: int = 0
    given: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    pending_steps: int = 0


def refine(config: RefineConfig) -> Path:
    """Refine a policy; the base's weights do not change.

    Args:
        config: What to refine and how.

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
        return Refinement(config, run).run()


class Refinement:
    """One refinement in its run directory."""

    def __init__(self, config: RefineConfig, run: RunDirectory) -> None:
        self.config, self._run = config, run
        self.policy: Policy = load_policy(config.policy, device=config.device)
        self._base_hash = self.policy.hash()
        self._envs = [sim.make(config.task, **config.task_arguments) for _ in range(config.rows)]
        self._store = EpisodeStore(run.path / "episodes")
        task = task_of(self._envs[0], "max_steps")
        self._steps_limit = config.rows * int(task.max_steps)
        self._inputs = _inputs(config, task.features)  # before the warm-up, which is long
        check_steps(config, self._steps_limit)
        self._started = time.monotonic()

    def run(self) -> Path:
        """Warm up, refine, save; see `refine`."""
        if (self._run.path / "result.json").exists():
            return self._run.path
        with stage("Refining", self.config.env_steps) as reporter:
            checkpoint = self._run.resumed
            at = _Progress(**checkpoint.manifest["progress"]) if checkpoint else _Progress()
            self._drop_unknown({*at.given, *at.pending})
            network, state = self._restore(checkpoint) if checkpoint else (self._warm_up(at, reporter), None)
            network.to(self.config.device)
            factory = functools.partial(
                ResidualLearner,
                network,
                replace(self.config.learner, seed=self.config.seed),
                executed_steps=self.policy.spec.executed_steps,
                capacity=2 * self.config.env_steps + self._steps_limit,
                device=self.config.device,
            )
            with LearnerProcess(factory, self._store.path, episodes=at.given, state=state) as learner:
                self._rounds(learner, network, at, reporter)
        return self._finish(network, at)

    def _wave(self, refiner: Refiner, at: _Progress, reporter: Stage) -> list[Episode]:
        """Collect and store one wave of episodes."""
        config = self.config
        first = TRAINING_SEEDS + config.seed * 1_000_000 + at.wave * config.rows
        exploring = LoopConfig(deterministic=False, stream=STREAM)
        loop = ControlLoop(self._envs, self.policy, refiner, exploring, clock=SimulatedClock())
        episodes = loop.run(range(first, first + config.rows), on_step=reporter.advance)
        for episode in episodes:
            self._store.write(episode)
        at.wave += 1
        at.env_steps += sum(map(len, episodes))
        at.pending += [episode.id for episode in episodes]
        at.pending_steps += sum(map(len, episodes))
        return episodes

    def _warm_up(self, at: _Progress, reporter: Stage) -> ResidualNetwork:
        """Roll out the base with random corrections and build the network from what was seen."""
        limits = self.policy.spec.action_spec
        probe = Refiner()
        episodes: list[Episode] = []
        scale: NDArray[np.float64] = np.zeros(limits.size)
        while at.env_steps < self.config.warmup_steps:
            episodes += self._wave(probe, at, reporter)
            if not scale.any():
                scale = self._scale(episodes)
                probe = Refiner(correct=CorrelatedNoise(scale))
            self._log(at, episodes[-self.config.rows :], {})
        return self._build(episodes, scale)

    def _scale(self, episodes: Sequence[Episode]) -> NDArray[np.float64]:
        """Greatest correction per dimension, (A,): a share of the base's reach."""
        actions = np.concatenate([episode.action_base for episode in episodes])
        return self.config.scale_fraction * reach(actions, self.policy.spec.action_spec)

    def _build(self, episodes: Sequence[Episode], scale: NDArray[np.float64]) -> ResidualNetwork:
        inputs = self._inputs
        x = np.concatenate([inputs.recorded(episode) for episode in episodes]).astype(np.float64)
        std = x.std(0)
        # A dimension that hardly moved in the warm-up must not explode when it first does.
        floor = np.maximum(1e-3 * np.abs(x).max(0), 1e-6)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return ResidualNetwork(
                ResidualConfig(inputs), x.mean(0), np.maximum(std, floor), scale, 2 * scale + 1e-6
            )

    def _rounds(
        self, learner: LearnerProcess, network: ResidualNetwork, at: _Progress, reporter: Stage
    ) -> None:
        """Each round learns from the last wave while the next is collected with the weights before it."""
        config, rounds = self.config, 0
        while True:
            more = at.env_steps + self._steps_limit <= config.env_steps
            save = (rounds + 1) % config.checkpoint_rounds == 0
            given = at.pending
            learner.begin(
                given, round(at.pending_steps * config.updates_per_step), with_state=save or not more
            )
            at.given, at.pending, at.pending_steps = at.given + given, [], 0
            episodes = self._wave(self._refiner(network), at, reporter) if more else []
            found = learner.collect()
            network.load_state_dict(found.weights)
            rounds += 1
            if episodes:
                self._log(at, episodes, found.metrics)
            if save or not more:  # the last one keeps the critics that a viewer shows
                self._checkpoint(network, found.state, at)
            if not more:
                return

    def _refiner(self, network: ResidualNetwork) -> Refiner:
        """The refiner with the network's present weights, and their hash as its version."""
        refiner = Refiner(correct=ResidualCorrector(network), base_hash=self._base_hash)
        return replace(refiner, version=version_of(refiner))

    def _log(self, at: _Progress, episodes: Sequence[Episode], metrics: Mapping[str, float]) -> None:
        residual = np.concatenate(
            [e.extra["residual"] for e in episodes if "residual" in e.extra] or [np.zeros((1, 1))]
        )
        self._run.log(
            at.env_steps,
            {
                "episodes": at.wave * self.config.rows,
                "success": float(np.mean([episode.success for episode in episodes])),
                "residual_rms": float(np.sqrt(np.mean(residual**2))),
                "residual_saturated": float(np.mean(np.abs(residual) > 0.95)),
                "seconds": time.monotonic() - self._started,
                **metrics,
            },
        )

    def _checkpoint(self, network: ResidualNetwork, state: Mapping[str, Tensor], at: _Progress) -> None:
        saved = self._run.checkpoint(
            at.env_steps,
            base_hash=self._base_hash,
            progress=vars(at),
            network=ResidualCorrector(network).payload(),
        )
        with saved as folder:
            save_file(dict(state), folder / "learner.safetensors")
            save_file(
                {key: value.clone() for key, value in network.state_dict().items()},
                folder / "actor.safetensors",
            )

    def _restore(self, checkpoint: Checkpoint) -> tuple[ResidualNetwork, dict[str, Tensor]]:
        tensors = read_tensors(checkpoint.path / "actor.safetensors")
        corrector = ResidualCorrector.from_payload(checkpoint.manifest["network"], tensors)
        return corrector.network, read_tensors(checkpoint.path / "learner.safetensors")

    def _drop_unknown(self, known: set[str]) -> None:
        """Remove episodes recorded after the checkpoint; they will be collected again."""
        for name in self._store.ids() if self._store.exists else ():
            if name not in known:
                self._store.remove(name)

    def _finish(self, network: ResidualNetwork, at: _Progress) -> Path:
        after = self.policy.hash()
        if after != self._base_hash:
            raise RuntimeError(
                f"The base changed during refinement: {self._base_hash} before, {after} after."
            )
        refiner = self._refiner(network)
        facts = {"task": self.config.task, "env_steps": at.env_steps, "policy": str(self.config.policy)}
        saved = save_refiner(self._run.path / "refiner", refiner, facts)
        self._run.write_json(
            "result.json",
            {
                "env_steps": at.env_steps,
                "episodes": at.wave * self.config.rows,
                "wall_seconds": time.monotonic() - self._started,
                "base_hash_before": self._base_hash,
                "base_hash_after": after,
                "refiner_version": saved.version,
            },
        )
        return self._run.path


def check_steps(config: RefineConfig, wave: int) -> None:
    """Refuse a refinement that would end before it learns.

    Args:
        config: Of the refinement.
        wave: Most environment steps of one wave: rows times the task's max_steps.

    Raises:
        ValueError: The warm-up and one wave take more steps than are allowed.
    """
    if config.warmup_steps + wave > config.env_steps:
        raise ValueError(
            f"env_steps is {config.env_steps}; the warm-up and one wave may take {config.warmup_steps} + "
            f"{wave}: allow more steps, or choose fewer rows or warmup_steps."
        )


def reach(actions: NDArray[np.float64], spec: ActionSpec) -> NDArray[np.float64]:
    """How far a base goes along each dimension of its action.

    Of absolute targets half the range between the 1 % and the 99 % quantile. Of deltas the greater of the two
    quantiles' sizes: a base that only ever moves down spans a small range, and a correction that could not
    cancel it could not stop the robot. Zero for grippers, which are left alone.

    Args:
        actions: the base's, (T, A), robot units.
        spec: what they mean.

    Returns:
        (A,), robot units.
    """
    low, high = np.quantile(actions, [0.01, 0.99], axis=0)
    found: NDArray[np.float64] = (high - low) / 2
    for group in spec.groups:
        at = spec.slice(group.name)
        if group.kind == "gripper":
            found[at] = 0.0
        elif group.mode == "delta":
            found[at] = np.maximum(np.abs(low[at]), np.abs(high[at]))
    return found


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
