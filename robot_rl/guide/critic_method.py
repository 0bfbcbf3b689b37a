"""``robot-rl refine critic``: value the chunks of a frozen policy, and follow or choose by value."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.config import to_dict
from policies.policy import ChunkPolicy, require_chunk_policy
from robot_rl.critics.chunk_fit import ChunkFit, fit_chunk_critic
from robot_rl.guide.critic_guidance import CriticGuidance, Gradient
from robot_rl.guide.latents import Kind, LatentSource, choose_source
from robot_rl.guide.values import ChunkValues, judge
from robot_rl.method_config import MethodConfig
from robot_rl.methods import load_base
from robot_rl.parts import save_refiner
from robot_rl.progress import stage
from robot_rl.refiner import Refiner
from robot_rl.rollouts import Rollouts
from robot_rl.runs import RunDirectory
from robot_rl.seeds import MOST_EPISODES, MOST_ROWS
from robot_rl.select.best_of import BestOf
from robot_rl.threads import one_torch_thread

if TYPE_CHECKING:
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy


@dataclass(frozen=True, kw_only=True)
class CriticConfig(MethodConfig):
    """Learn what the policy's own chunks are worth, then climb that value or choose the best of several."""

    use: Literal["guide", "select"] = "guide"
    """guide: each chunk's denoising climbs the value; select: the best of `candidates` chunks is executed"""
    rollouts: int = 300
    """episodes of the base that the critic learns from"""
    rows: int = 8
    """episodes collected side by side"""
    latent: Kind = "auto"
    """what the critic reads: the state, features of the base's encoder, or what fits its inputs"""
    eta: float = 0.05
    """size of each guided move, in the normalised action space"""
    guided_steps: int = 3
    """last denoising steps that are guided"""
    gradient: Gradient = "clean"
    """whether the slope is taken at the clean estimate, or carried back through the network"""
    candidates: int = 8
    """chunks to choose from, the base's own included"""
    critic: ChunkFit = field(default_factory=ChunkFit)
    """of the critic"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        self.check_range("rollouts", 2, MOST_EPISODES)
        self.check_range("rows", 1, MOST_ROWS)
        self.check_range("eta", 0, 100)
        self.check_range("guided_steps", 1, 1000)
        self.check_range("candidates", 1, 1000)


def refine_by_value(config: CriticConfig) -> Path:
    """Roll the base out, learn the critic, save the hook or the selector.

    Args:
        config: see `CriticConfig`.

    Returns:
        The run directory; its folder ``refiner`` is what ``--refiner`` loads.

    Raises:
        RuntimeError: if the base's hash changed during the run.
        PolicyError: if the base takes no noise, or is to be guided and keeps its denoising closed.
    """
    settings = to_dict(replace(config, resume=False, wandb=False))
    directory = RunDirectory.create(
        config.out, settings, kind="critic-guidance", resume=config.resume, wandb=config.wandb
    )
    with directory as run, one_torch_thread():
        if not (run.path / "result.json").exists():
            _run(config, run)
        return run.path


def _run(config: CriticConfig, run: RunDirectory) -> None:
    started = time.monotonic()
    policy = load_base(config, "critic")
    if config.use == "guide":
        policy = require_chunk_policy(policy, "guidance by a critic")
    before = policy.hash()
    episodes = _episodes(config, run, policy)
    latents, judged = judge(policy, _source(policy, config.latent), episodes)
    critic, check = fit_chunk_critic(
        run.path / "critic",
        config.critic,
        judged,
        span=policy.spec.executed,
        seed=config.seed,
        device=config.device,
    )
    check.warn()
    values = ChunkValues(latents, critic)
    facts = {"task": config.task, "method": "critic", "policy": str(config.policy)}
    saved = save_refiner(run.path / "refiner", _refiner(config, values, before), facts)
    if (after := policy.hash()) != before:
        raise RuntimeError(f"The base changed during the run: {before} before, {after} after.")
    result: dict[str, Any] = {
        "rollouts": len(episodes),
        "success": float(np.mean([episode.success for episode in episodes])),
        "critic": to_dict(check),
        "env_steps": sum(map(len, episodes)),
        "base_hash_before": before,
        "base_hash_after": after,
        "refiner_version": saved.version,
        "wall_seconds": time.monotonic() - started,
    }
    run.write_json("result.json", result)


def _episodes(config: CriticConfig, run: RunDirectory, policy: Policy) -> list[Episode]:
    """Rollouts of the base, whole waves; those that are there already are read."""
    rollouts = Rollouts(config, policy, run.path / "episodes", config.rows)
    found: list[Episode] = []
    waves = math.ceil(config.rollouts / config.rows)
    with stage("Rolling out the base", waves) as reporter:
        for number in range(waves):
            known = set(rollouts.store.ids()) if rollouts.store.exists else set()
            names = rollouts.names(number)
            if known.issuperset(names):
                found += [rollouts.store.read(name) for name in names]
            else:
                for name in known.intersection(names):
                    rollouts.store.remove(name)
                found += rollouts.wave(number, Refiner())
            reporter.update(number + 1)
    return found


def _source(policy: Policy, kind: Kind) -> LatentSource:
    if isinstance(policy, ChunkPolicy):
        return choose_source(policy, kind)
    vectors = tuple(key for key, feature in policy.spec.features.items() if not feature.is_image)
    return LatentSource(features=False, keys=vectors)


def _refiner(config: CriticConfig, values: ChunkValues, base_hash: str) -> Refiner:
    if config.use == "select":
        return Refiner(select=BestOf(values, config.candidates), base_hash=base_hash)
    hook = CriticGuidance(values, eta=config.eta, guided_steps=config.guided_steps, gradient=config.gradient)
    return Refiner(hooks=(hook,), base_hash=base_hash)
