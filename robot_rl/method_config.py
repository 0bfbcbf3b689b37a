"""What the configuration of every refinement method has in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robot_rl.seeds import MOST_SEED
from robot_rl.task_settings import TaskSettings


@dataclass(frozen=True)
class MethodConfig(TaskSettings):
    """Which policy is refined on which task, and where the run goes.

    A method's configuration derives from it, as a frozen dataclass whose ``__post_init__`` calls this one.
    """

    policy: Path
    """The frozen base: its folder, or a LeRobot checkpoint as a folder or hub id."""
    out: Path
    """Run directory to write."""
    task: str = "peg-insert"
    """Name of the task."""
    seed: int = 0
    """Of episodes, weights and sampling."""
    device: str = "cpu"
    """Torch device of policy, refiner and learner."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    resume: bool = False
    """Go on from the run's last checkpoint."""

    def __post_init__(self) -> None:
        """Check the seed's range."""
        super().__post_init__()
        self.check_range("seed", 0, MOST_SEED)

    def check_range(self, name: str, low: float, high: float) -> None:
        """Refuse a number outside its range.

        Args:
            name: of the field.
            low: least value allowed.
            high: greatest value allowed.

        Raises:
            ValueError: it lies outside, or is no number.
        """
        value = getattr(self, name)
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}; it must lie in {low:,} .. {high:,}.")
