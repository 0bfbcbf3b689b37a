"""What the configurations of methods that learn online have in common."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.method_config import MethodConfig
from robot_rl.seeds import MOST_ROWS

MOST_STEPS = 10_000_000
"""Environment steps of a refinement; its replay holds twice as many rows in memory."""
MOST_UPDATES = 100.0
"""Updates per environment step."""


@dataclass(frozen=True)
class OnlineConfig(MethodConfig):
    """How much is collected and learned."""

    env_steps: int = 32_000
    """Most environment steps, warm-up included."""
    warmup_steps: int = 3_000
    """Steps of base rollouts before learning starts; at least one wave is collected."""
    rows: int = 8
    """Episodes collected side by side."""
    updates_per_step: float = 1.0
    """Updates per environment step."""
    checkpoint_rounds: int = 8
    """Rounds between checkpoints."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        if not 0 < self.updates_per_step <= MOST_UPDATES:
            raise ValueError(
                f"updates_per_step is {self.updates_per_step}; it must lie in (0, {MOST_UPDATES:g}]."
            )
        if self.warmup_steps >= self.env_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be below env_steps {self.env_steps}.")
        self.check_range("env_steps", 1, MOST_STEPS)
        self.check_range("warmup_steps", 0, MOST_STEPS)
        self.check_range("rows", 1, MOST_ROWS)
        self.check_range("checkpoint_rounds", 1, MOST_STEPS)


def check_steps(config: OnlineConfig, wave: int) -> None:
    """Refuse a refinement that would end before it learns.

    Args:
        config: Of the refinement.
        wave: Most environment steps of one wave: rows times the task's max_steps.

    Raises:
        ValueError: The warm-up and one wave take more steps than are allowed.
    """
    if config.warmup_steps + wave > config.env_steps:
        raise ValueError(
            f"env_steps is {config.env_steps}; the warm-up and one wave may take {config.warmup_steps} + "
            f"{wave}: allow more steps, or choose fewer rows or warmup_steps."
        )
