"""What ReGuide is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from robot_rl.guide.config import GuideConfig
from robot_rl.guide.phases import PhaseConfig

Absorb = Literal["ft", "fs"]


@dataclass(frozen=True)
class TuneConfig:
    """How a student goes on from its policy."""

    steps: int = 6000
    """updates"""
    learning_rate: float = 3e-4
    """of AdamW after the warm-up; falls to 0 along a cosine"""
    warmup: int = 500
    """updates in which the learning rate rises"""
    share: float = 0.8
    """of each batch that comes from the successes"""


@dataclass(frozen=True, kw_only=True)
class ReGuideConfig(GuideConfig):
    """Guide a policy by phases and train on what succeeds under guidance."""

    scale: float = 0.1
    """scale of the guidance, in units of the phases' mean temperature; the paper's 0.01 is in raw features,
    for 10 to 30 guided steps"""
    phases: PhaseConfig = field(default_factory=PhaseConfig)
    """how phases are found and left"""
    absorb: tuple[Absorb, ...] = ("fs", "ft")
    """rounds: "fs" trains from scratch on demonstrations and all successes, "ft" goes on from the present
    policy with them; none: guidance alone is the refiner"""
    successes: int = 15
    """successful episodes collected in each round"""
    attempts: int = 400
    """most episodes for that"""
    guide: bool = True
    """whether collection is guided; without it is plain self-distillation, the control at equal numbers"""
    tune: TuneConfig = field(default_factory=TuneConfig)
    """of "ft"; "fs" repeats the training of the base"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        self.check_range("scale", 0, 100)
        self.check_range("successes", 1, 100_000)
        self.check_range("attempts", self.successes, 1_000_000)
        if unknown := sorted(set(self.absorb) - {"ft", "fs"}):
            raise ValueError(f"absorb names {unknown}, allowed are ft and fs")
        if not (self.guide or self.absorb):
            raise ValueError("neither guide nor absorb: nothing would be refined")
