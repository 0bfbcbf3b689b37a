"""The whole job on peg insertion: demonstrations, a frozen base, its refinement, both evaluated, one page."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sim
from data.config import to_dict
from policies.device import check_device
from policies.flow_config import FlowConfig
from robot_rl.collect import CollectConfig, collect
from robot_rl.correct.residual_recipe import RefineConfig, refine
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.online_config import check_steps
from robot_rl.parallel import resolve_workers
from robot_rl.progress import stage
from robot_rl.provenance import versions
from robot_rl.report.build import write_report
from robot_rl.report.material import record_shown
from robot_rl.runs import RunDirectory
from robot_rl.seeds import DEMONSTRATION_SEEDS, check_episodes
from robot_rl.statistics import paired_difference
from robot_rl.task_settings import TaskSettings
from robot_rl.train import TrainConfig, train
from sim.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVALUATION_SEEDS = 10_000_000
"""Seeds of evaluations; each --seed has its own, as it has of demonstrations, used for nothing else."""

ESTIMATE = "observation.environment_state"
"""All that the base reads: where the camera says the hole is, relative to the tool."""


@dataclass(frozen=True)
class DemoConfig(TaskSettings):
    """Show the whole job on peg insertion: about four minutes on two cores."""

    out: Path = Path("outputs/demo")
    """folder of the run"""
    task: str = "peg-insert"
    """task name, Gymnasium id or module:Class; it needs a scripted expert"""
    seed: int = 0
    """of everything: demonstrations, weights, refinement and the held-out seeds"""
    demonstrations: int = 100
    """episodes of the scripted expert"""
    base_steps: int = 2000
    """updates of behaviour cloning"""
    inputs: tuple[str, ...] = (ESTIMATE,)
    """observation keys that the base reads"""
    env_steps: int = 32_000
    """environment steps of the refinement, warm-up included"""
    warmup_steps: int = 3000
    """of them, base rollouts with random corrections before learning starts"""
    scale_fraction: float = 0.8
    """greatest correction, as a share of the largest movement of the base"""
    episodes: int = 200
    """held-out seeds on which base and refined policy are evaluated"""
    workers: int = 0
    """processes that collect and evaluate; 0 is one per core"""
    video: bool = True
    """whether the page shows a video; without OpenGL it says so"""
    device: str = "cpu"
    """torch device of the networks; they are small, so the CPU is as fast"""
    resume: bool = False
    """go on with an interrupted run; otherwise an earlier run in the folder is replaced"""

    def __post_init__(self) -> None:
        """Check the values that the stages do not check themselves."""
        super().__post_init__()
        if not 0 <= self.seed < 1000:
            raise ValueError(f"seed is {self.seed}, allowed is 0 to 999: each has held-out seeds of its own")
        check_episodes(self.episodes)
        collection(self, self.out)
        training(self, self.out, self.out)
        refinement(self, self.out, self.out)
        evaluation(self, self.out, None)
        resolve_workers(self.workers, 1)


def run_demo(config: DemoConfig) -> Path:
    """Run every stage that is not done yet, and write result.json and report.html.

    Args:
        config: what to show.

    Returns:
        the page.
    """
    started = time.monotonic()
    _check(config)
    settings = to_dict(replace(config, resume=False))
    with RunDirectory.create(
        config.out, settings, kind="demo", resume=config.resume, replace=not config.resume
    ) as run:
        earlier = Stages(run)
        demonstrations, base, refined = (run.path / name for name in ("demonstrations", "base", "refined"))
        earlier.once("collect", lambda: collect(collection(config, demonstrations)))
        earlier.once("train", lambda: train(training(config, demonstrations, base)))
        before = earlier.once("base", lambda: evaluate(evaluation(config, base, None)).to_json())
        earlier.once("refine", lambda: refine(refinement(config, base, refined)))
        after = earlier.once("refined", lambda: evaluate(evaluation(config, base, refined)).to_json())
        result = _result(before, after, RunDirectory.open(refined).read_json("result.json"))
        result["wall_seconds"] = earlier.add_seconds(time.monotonic() - started)
        run.write_json("result.json", result)
        with stage("Writing the report"):
            earlier.once("shown", lambda: record_shown(run.path, before, after))
            return write_report(run.path, video=config.video)


def _check(config: DemoConfig) -> None:
    """Refuse what a later stage would refuse, before an earlier run is removed and minutes have passed."""
    check_device(config.device)
    env = sim.make(config.task, **config.task_arguments)
    task = task_of(env, "expert", "max_steps")
    env.close()
    if unknown := [key for key in config.inputs if key not in task.features]:
        raise ValueError(f"inputs names {unknown}; {config.task} has {', '.join(task.features)}")
    ours = refinement(config, config.out, config.out)
    check_steps(ours, ours.rows * int(task.max_steps))


class Stages:
    """Which stages of a run are done and what they gave, kept on disk."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        done = run.path / "stages.json"
        self._done: dict[str, Any] = run.read_json("stages.json") if done.exists() else {"seconds": 0.0}

    def once(self, name: str, work: Callable[[], Any]) -> dict[str, Any]:
        """Do the work unless an earlier start of this run did it; what it gave if that was a mapping."""
        if name not in self._done:
            started = time.monotonic()
            found = work()
            self._done[name] = found if isinstance(found, dict) else {}
            self._done.setdefault("timing", {})[name] = time.monotonic() - started
            self._run.write_json("stages.json", self._done)
        result: dict[str, Any] = self._done[name]
        return result

    def add_seconds(self, seconds: float) -> float:
        """Wall time of this and earlier starts of the run."""
        self._done["seconds"] += seconds
        self._run.write_json("stages.json", self._done)
        total: float = self._done["seconds"]
        return total


def collection(config: DemoConfig, out: Path) -> CollectConfig:
    """How demonstrations are collected into a folder; an earlier start there is gone on with."""
    return CollectConfig(
        out=out,
        task=config.task,
        episodes=config.demonstrations,
        seed=DEMONSTRATION_SEEDS + 100_000 * config.seed,
        workers=config.workers,
        **config.task_settings,
        resume=out.exists(),
    )


def training(config: DemoConfig, data: Path, out: Path) -> TrainConfig:
    """How the base is trained on the demonstrations in ``data``."""
    network = FlowConfig(inputs=config.inputs)
    return TrainConfig(
        data=data,
        out=out,
        network=network,
        steps=config.base_steps,
        seed=config.seed,
        resume=out.exists(),
        device=config.device,
    )


def refinement(config: DemoConfig, policy: Path, out: Path) -> RefineConfig:
    """How the base in ``policy`` is refined."""
    return RefineConfig(
        policy=policy,
        out=out,
        task=config.task,
        env_steps=config.env_steps,
        warmup_steps=config.warmup_steps,
        scale_fraction=config.scale_fraction,
        seed=config.seed,
        **config.task_settings,
        device=config.device,
        resume=out.exists(),
    )


def evaluation(config: DemoConfig, policy: Path, refiner: Path | None) -> EvaluateConfig:
    """How the base in ``policy``, alone or refined, is evaluated on the held-out seeds of ``config.seed``."""
    return EvaluateConfig(
        policy=policy,
        refiner=() if refiner is None else (refiner,),
        task=config.task,
        episodes=config.episodes,
        seed=EVALUATION_SEEDS + 10_000 * config.seed,
        workers=config.workers,
        device=config.device,
        **config.task_settings,
    )


def _result(
    base: Mapping[str, Any], refined: Mapping[str, Any], refinement: Mapping[str, Any]
) -> dict[str, Any]:
    """What result.json holds; see the README."""
    before, after = ([bool(row["success"]) for row in arm["episodes"]] for arm in (base, refined))
    difference = paired_difference(before, after)
    return {
        "base": dict(base),
        "refined": dict(refined),
        "paired_difference": {
            "value": difference.value,
            "interval": list(difference.interval),
            "p_value": difference.p_value,
        },
        "env_steps": refinement["env_steps"],
        "base_hash_before": refinement["base_hash_before"],
        "base_hash_after": refined["base_hash"],
        "versions": versions(),
    }
