"""``robot-rl refine rtc``: real-time chunking as a refiner. Nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from data.config import to_dict
from robot_rl.guide.real_time import RealTimeChunking, RealTimeConfig
from robot_rl.method_config import MethodConfig
from robot_rl.methods import load_base
from robot_rl.parts import save_refiner
from robot_rl.refiner import Refiner
from robot_rl.runs import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RealTimeMethodConfig(MethodConfig):
    """Join each chunk to the one before, so that a slow policy does not jerk."""

    chunking: RealTimeConfig = field(default_factory=RealTimeConfig)
    """how it is joined"""


def make_real_time(config: RealTimeMethodConfig) -> Path:
    """Write a refiner that joins the chunks of a policy.

    Args:
        config: Of which policy, and how.

    Returns:
        The run directory; its folder `refiner` is what `--refiner` loads.

    Raises:
        PolicyError: The policy keeps its denoising closed.
    """
    settings = to_dict(replace(config, resume=False, wandb=False))
    with RunDirectory.create(config.out, settings, kind="rtc", resume=config.resume) as run:
        policy = load_base(config, "rtc")
        refiner = Refiner(hooks=(RealTimeChunking(config.chunking),), base_hash=policy.hash())
        saved = save_refiner(run.path / "refiner", refiner, {"policy": str(config.policy)})
        run.write_json("result.json", {"refiner_version": saved.version, "base_hash": refiner.base_hash})
    return run.path
