"""What one transition of a replay is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reach:
    """What one transition of a replay is.

    Attributes:
        chunk: Actions L of a chunk; None for single actions.
        n_step: Chunks (or single steps) whose rewards are summed before bootstrapping.
        gamma: Discount per step, 0 to 1.
    """

    chunk: int | None = None
    n_step: int = 1
    gamma: float = 0.99

    def __post_init__(self) -> None:
        """Check every field."""
        if self.n_step < 1 or (self.chunk is not None and self.chunk < 1):
            raise ValueError(f"chunk {self.chunk} and n_step {self.n_step} must be at least 1.")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma is {self.gamma}; a discount per step lies between 0 and 1.")

    @property
    def actions(self) -> int:
        """Actions of a chunk, 1 without chunks."""
        return self.chunk or 1

    @property
    def steps(self) -> int:
        """Most steps from the observation of a transition to its next one."""
        return self.n_step * self.actions
