"""``robot-rl refine critic``: value the chunks of a frozen policy, and follow or choose by value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from data.config import to_dict
from policies.policy import require_chunk_policy
from robot_rl.critics.chunk_fit import ChunkFit, fit_chunk_critic
from robot_rl.guide.collecting import Collector
from robot_rl.guide.critic_guidance import CriticGuidance, Gradient
from robot_rl.guide.latents import Kind, choose_source
from robot_rl.guide.summary import success_share
from robot_rl.guide.values import ChunkValues, judge
from robot_rl.method_config import MethodConfig
from robot_rl.one_pass import OnePass, refine_in_one_pass
from robot_rl.refiner import Refiner
from robot_rl.seeds import MOST_EPISODES, MOST_ROWS
from robot_rl.select.best_of import BestOf
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from pathlib import Path


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
    return refine_in_one_pass(config, "critic", _work)


def _work(here: OnePass[CriticConfig]) -> tuple[Refiner, dict[str, Any]]:
    config, run, policy = here.config, here.run, here.policy
    if config.use == "guide":
        policy = require_chunk_policy(policy, "guidance by a critic")
    collector = Collector(config, policy, run.path, config.rows)
    episodes = collector.collect(
        collector.store(run.path / "episodes"),
        math.ceil(config.rollouts / config.rows),
        lambda _: Refiner(),
        name="Rolling out the base",
    )
    texts = TaskTexts.of((episode.task for episode in episodes), reads_task=policy.spec.reads_task)
    latents, judged = judge(policy, choose_source(policy, config.latent), episodes, texts)
    critic, check = fit_chunk_critic(
        run.path / "critic",
        config.critic,
        judged,
        span=policy.spec.executed,
        seed=config.seed,
        device=config.device,
    )
    check.warn()
    return here.save(_refiner(config, ChunkValues(latents, critic, texts))), {
        "rollouts": len(episodes),
        "success": success_share(episodes),
        "critic": to_dict(check),
        "env_steps": sum(map(len, episodes)),
    }


def _refiner(config: CriticConfig, values: ChunkValues) -> Refiner:
    if config.use == "select":
        return Refiner(select=BestOf(values, config.candidates))
    hook = CriticGuidance(values, eta=config.eta, guided_steps=config.guided_steps, gradient=config.gradient)
    return Refiner(hooks=(hook,))
