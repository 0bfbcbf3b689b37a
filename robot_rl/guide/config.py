"""What methods that guide through latent dynamics are told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.guide.dynamics import DynamicsConfig
from robot_rl.guide.latents import Kind
from robot_rl.method_config import MethodConfig
from robot_rl.seeds import MOST_EPISODES, MOST_ROWS


@dataclass(frozen=True, kw_only=True)
class GuideConfig(MethodConfig):
    """What both methods need: demonstrations, rollouts of the base, and dynamics trained on them."""

    data: Path
    """demonstrations that the base was trained on: an episode store, a run of robot-rl collect, or a
    LeRobotDataset v3 folder"""
    rollouts: int = 200
    """episodes of the base from which the dynamics learn what lies beside the demonstrations"""
    exploration: float = 0.5
    """noise on every second wave of them, as a share of the base's reach; 0: none"""
    rows: int = 8
    """episodes collected side by side"""
    latent: Kind = "auto"
    """what distances are measured in: the state, features of the base's encoder, or what fits its inputs"""
    guided_steps: int = 3
    """last denoising steps that may be guided"""
    trial_episodes: int = 16
    """episodes on training seeds at the end, to report how often guidance acts"""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """of the latent dynamics"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        self.check_range("rollouts", 1, MOST_EPISODES)
        self.check_range("exploration", 0, 1)
        self.check_range("rows", 1, MOST_ROWS)
        self.check_range("guided_steps", 1, 1000)
        self.check_range("trial_episodes", 0, MOST_EPISODES)

    def waves(self, episodes: int) -> int:
        """Number of waves that hold so many episodes."""
        return math.ceil(episodes / self.rows)
