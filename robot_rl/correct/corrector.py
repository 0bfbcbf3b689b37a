"""What a corrector sees and returns: an additive correction of the base action, one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.correct.history import History


@dataclass(frozen=True)
class CorrectorInput:
    """One control step of B rows.

    Attributes:
        observation: By key, each (B, ...), as the robot gave it (SI units, no normalisation).
        base_chunk: The frozen policy's chunk, (B, H, A), robot units.
        index: Position of the present step in the chunk, (B,).
        history: Past observations and corrections of each row, from the loop.
        deterministic: Whether to act without exploration.
        generators: One random generator a row; the only source of exploration, so that a row does not depend
            on its neighbours.
        tasks: Text of each row's task; empty where nobody knows.
    """

    observation: Mapping[str, NDArray[Any]]
    base_chunk: NDArray[np.float32]
    index: NDArray[np.int64]
    history: History
    deterministic: bool
    generators: tuple[np.random.Generator, ...]
    tasks: tuple[str, ...] = ()

    @property
    def base_action(self) -> NDArray[np.float64]:
        """The base action of this step, (B, A), robot units; past the chunk's end its last action repeats."""
        last = self.base_chunk.shape[1] - 1
        rows = np.arange(len(self.index))
        base: NDArray[np.float64] = self.base_chunk[rows, np.minimum(self.index, last)].astype(np.float64)
        return base


@dataclass(frozen=True)
class Correction:
    """A corrected action.

    Attributes:
        action: (B, A), robot units.
        log_prob: Log-density of the drawn correction, (B,); None when deterministic.
        info: Diagnostics by name, each (B, ...), recorded per step.
    """

    action: NDArray[np.float64]
    log_prob: NDArray[np.float64] | None = None
    info: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Corrector(ABC):
    """Corrects one action per control step and row. Stateless: what it remembers lives in `History`.

    Attributes:
        history_keys: Observation keys whose past it reads.
        history_length: How many past steps it reads, 0 for none.
    """

    history_keys: tuple[str, ...] = ()
    history_length: int = 0

    def begin_episode(self, rows: NDArray[np.int64]) -> None:  # noqa: B027 - optional on purpose
        """Called when the given rows start an episode."""

    @abstractmethod
    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Correct the base actions of one step.

        Args:
            request: What is seen.
            gain: Share of the correction to apply, 0 .. 1; 0 returns the base action bit-equal.

        Returns:
            (B, A) actions in robot units; an untrained corrector returns the base action bit-equal.
        """
