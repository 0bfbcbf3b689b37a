"""``robot-rl refine rtc``: real-time chunking as a refiner. Nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from robot_rl.guide.real_time import RealTimeChunking, RealTimeConfig
from robot_rl.method_config import MethodConfig
from robot_rl.one_pass import refine_in_one_pass
from robot_rl.refiner import Refiner

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
    hook = RealTimeChunking(config.chunking)
    return refine_in_one_pass(config, "rtc", lambda here: (here.save(Refiner(hooks=(hook,))), {}))
