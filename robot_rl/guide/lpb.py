"""``robot-rl refine lpb``: a latent policy barrier for a frozen policy, without rewards."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.guide.barrier import LatentBarrier, Targets, control_targets, nearest_distance
from robot_rl.guide.collecting import Collector
from robot_rl.guide.config import GuideConfig
from robot_rl.guide.picture import draw_distance
from robot_rl.guide.preparation import base_rollouts, prepare
from robot_rl.guide.summary import chunk_values, percentiles, success_share
from robot_rl.one_pass import OnePass, refine_in_one_pass
from robot_rl.refiner import Refiner
from robot_rl.task_texts import NO_TEXTS, TaskTexts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jaxtyping import Float, Int
    from numpy.typing import NDArray
    from torch import Tensor

    from data.records import Episode
    from robot_rl.guide.frames import Frames
    from robot_rl.guide.preparation import Prepared
    from robot_rl.runs import RunDirectory

logger = logging.getLogger(__name__)

_BATCH = 512
LEAST_THRESHOLD = 1e-3
"""In units of spread; demonstrations nearer to each other than that are all the same."""


@dataclass(frozen=True, kw_only=True)
class LpbConfig(GuideConfig):
    """Steer a policy back to what was demonstrated when it has strayed, without any reward."""

    eta: float = 0.25
    """scale of the guidance, in units of the threshold; the paper's scales times its thresholds are 0.07 to
    0.56"""
    percentile: float = 97.5
    """of the demonstrations' own distances, above which a row is guided"""
    bank: int = 5000
    """most demonstrated frames that distances are measured to"""
    targets: Targets = "expert"
    """what guidance pulls towards; "random" and "shuffled" are negative controls"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        self.check_range("eta", 0, 100)
        self.check_range("percentile", 0, 100)
        self.check_range("bank", 2, 1_000_000)


def lpb(config: LpbConfig) -> Path:
    """Fit the dynamics, calibrate the gate, save the hook, and try it on training seeds.

    Args:
        config: see `LpbConfig`.

    Returns:
        The run directory; its folder ``refiner`` is what ``--refiner`` loads.

    Raises:
        RuntimeError: if the base's hash changed during the run.
        PolicyError: if the base is closed, gives no gradients, or keeps its features to itself.
    """
    return refine_in_one_pass(config, "lpb", _work)


def _work(here: OnePass[LpbConfig]) -> tuple[Refiner, dict[str, Any]]:
    config, run, policy = here.config, here.run, here.policy
    collector = Collector(config, policy, run.path, config.rows)
    episodes = base_rollouts(config, run.path / "episodes", collector, policy)
    prepared = prepare(config, run.path / "dynamics", policy, [run.path / "episodes"], config.data)
    hook, own = _barrier(config, prepared)
    saved = here.save(Refiner(hooks=(hook,)))
    shown = [episode for _ in range(config.waves(config.trial_episodes)) for episode in collector.run(saved)]
    return saved, {
        "threshold": hook.threshold,
        "expert_distance": percentiles(own),
        "rollouts": {"episodes": len(episodes), "success": success_share(episodes)},
        "dynamics": prepared.check.to_json(),
        "trial": _trial(shown, run, hook.threshold),
        "env_steps": sum(map(len, episodes)) + sum(map(len, shown)),
    }


def _barrier(config: LpbConfig, prepared: Prepared) -> tuple[LatentBarrier, NDArray[np.float64]]:
    """The hook, and the demonstrations' own distances by which its threshold was chosen."""
    bank, distances, owner = calibrate(prepared.frames, config.bank, config.seed, prepared.texts)
    own = distances.numpy().astype(np.float64)
    threshold = float(np.percentile(own, config.percentile))
    hook = LatentBarrier(
        prepared.model,
        bank,
        threshold=threshold,
        eta=config.eta / max(threshold, LEAST_THRESHOLD),
        guided_steps=config.guided_steps,
        targets=_control(bank, owner, config),
        texts=prepared.texts,
        owner=owner,
    )
    return hook, own


def _control(bank: Tensor, owner: Tensor, config: LpbConfig) -> Tensor | None:
    """What a negative control pulls towards, made of each task's own frames."""
    if config.targets == "expert":
        return None
    made = torch.empty_like(bank)
    for task in torch.unique(owner):
        found = control_targets(bank[owner == task], config.targets, config.seed)
        assert found is not None
        made[owner == task] = found
    return made


def calibrate(
    frames: Frames, most: int, seed: int, texts: TaskTexts | None = None
) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Choose the bank, and measure how far a demonstration's frames are from all others of its task.

    Leaving a frame's own demonstration out stands for a demonstration that was never seen.

    Args:
        frames: of the demonstrations, scaled.
        most: frames in the bank; chosen at random where there are more.
        seed: of that choice.
        texts: of the tasks, if there are several.

    Returns:
        The bank, the distance of each of its frames, and the task of each.

    Raises:
        ValueError: if there is only one demonstration of a task.
    """
    texts = texts or NO_TEXTS
    count = len(frames.latents)
    chosen = torch.arange(count)
    if count > most:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values
    bank, owner = frames.latents[chosen], frames.trajectory[chosen]
    task = frames.tasks(texts)[chosen]
    for number in range(texts.count):
        if len(torch.unique(owner[task == number])) < 2:
            of = f" of {texts.texts[number]!r}" if texts.size else ""
            raise ValueError(f"one demonstration{of} is not enough: distances are measured to the others")
    scene = bank[:, : frames.scene]
    own = torch.empty(len(bank))
    for number in torch.unique(owner):
        inside = owner == number
        others = scene[~inside & (task == task[inside][0])]
        own[inside] = torch.cat(
            [nearest_distance(part, others) for part in torch.split(scene[inside], _BATCH)]
        )
    return bank, own, task


def _trial(episodes: Sequence[Episode], run: RunDirectory, threshold: float) -> dict[str, Any]:
    """How often guidance acted on training seeds, and a picture of the episode in which it did most."""
    if not episodes:
        return {}
    active, distance = (chunk_values(episodes, f"lpb.{name}") for name in ("active", "distance"))
    most = max(episodes, key=lambda episode: float(episode.extra["lpb.active"].sum()))
    draw_distance(run.path / "distance.png", most, threshold)
    found = {"guided_share": float(active.mean()), "success": success_share(episodes)}
    run.log(len(episodes), {f"trial/{key}": value for key, value in found.items()})
    logger.info("guidance acted in %.0f %% of the chunks on training seeds", 100 * active.mean())
    return {**found, "episodes": len(episodes), "distance": percentiles(distance)}
