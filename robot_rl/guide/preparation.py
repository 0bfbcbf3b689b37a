"""From demonstrations and rollouts to latents and dynamics: the first half of every guided method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.policy import require_chunk_policy
from robot_rl.correct.exploration import CorrelatedNoise, reach
from robot_rl.guide.dynamics import DynamicsCheck, fit_dynamics
from robot_rl.guide.frames import Frames, encode_frames, read_trajectories
from robot_rl.guide.hook import GuideModel
from robot_rl.guide.latents import Latents, choose_source
from robot_rl.refiner import Refiner
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from data.records import Episode
    from data.windows import Trajectory
    from policies.policy import Policy
    from robot_rl.guide.collecting import Collector
    from robot_rl.guide.config import GuideConfig


@dataclass(frozen=True, eq=False)
class Prepared:
    """What guidance is built from.

    Attributes:
        model: latents and dynamics.
        frames: of the demonstrations, scaled.
        check: errors of the dynamics on held-out transitions.
        texts: of the demonstrated tasks.
    """

    model: GuideModel
    frames: Frames
    check: DynamicsCheck
    texts: TaskTexts


def base_rollouts(
    config: GuideConfig, folder: Path, collector: Collector, policy: Policy
) -> Sequence[Episode]:
    """Collect rollouts of the base, every second wave with correlated noise on its actions.

    Deviation from LPB, whose rollouts come from earlier checkpoints of the base: of a frozen base there is
    only the last.

    Args:
        config: how many, and how much noise.
        folder: of the store.
        collector: runs them.
        policy: the base; its action limits bound the noise.
    """
    store = collector.store(folder)
    first = collector.collect(store, 1, lambda _: Refiner(), name="Rolling out the base")
    moved = np.concatenate([episode.action_base for episode in first])
    scale = config.exploration * reach(moved, policy.spec.action_spec)
    noisy = Refiner(correct=CorrelatedNoise(scale)) if config.exploration else Refiner()
    rest = collector.collect(
        store,
        config.waves(config.rollouts) - 1,
        lambda wave: Refiner() if wave % 2 else noisy,
        name="Rolling out the base",
    )
    return [*first, *rest]


def prepare(
    config: GuideConfig, folder: Path, policy: Policy, stores: Sequence[Path], demonstrations: Path
) -> Prepared:
    """Encode demonstrations and rollouts with the frozen policy and fit the dynamics.

    Args:
        config: of latents and dynamics.
        folder: of the run of the dynamics.
        policy: whose encoder and chunks are guided.
        stores: of rollouts.
        demonstrations: see `GuideConfig.data`.

    Raises:
        PolicyError: if the policy's denoising is closed.
        ValueError: if several tasks were demonstrated, and another one is rolled out.
    """
    base = require_chunk_policy(policy, "guidance through latent dynamics")
    source = choose_source(base, config.latent)
    raw = encode_frames(base, source, read_trajectories(base, demonstrations))
    others: list[Trajectory] = [t for path in stores for t in read_trajectories(base, path, rollouts=True)]
    texts = TaskTexts.of(raw.told, reads_task=base.spec.reads_task)
    texts.numbers([trajectory.task for trajectory in others])
    latents = Latents.fit(source, raw.latents, raw.scene)
    frames = raw.scaled(latents)
    everything = frames.joined(encode_frames(base, source, others).scaled(latents))
    dynamics, check = fit_dynamics(
        folder, config.dynamics, everything, seed=config.seed, device=config.device
    )
    check.warn()
    return Prepared(GuideModel(latents, dynamics), frames, check, texts)
