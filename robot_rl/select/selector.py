"""What a selector sees and returns: candidates for a chunk, and which of them is taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Float, Int
    from torch import Tensor

    from policies.policy import Policy
    from policies.request import ChunkRequest


class Selector(ABC):
    """Chooses among candidate chunks (best-of-N; EXPO, arXiv 2507.07986). Rows are independent.

    Attributes:
        keys: observation keys that it reads besides the policy's own; they are in the request then.
    """

    keys: tuple[str, ...] = ()

    @abstractmethod
    def propose(
        self,
        request: ChunkRequest,
        policy: Policy,
        noise: Float[Tensor, "B H Z"],
        generators: Sequence[np.random.Generator],
    ) -> Float[Tensor, "B N H A"]:
        """Return N candidates per row, robot units; the first is the base's own.

        Args:
            request: Observation and execution state of B rows.
            policy: The frozen base.
            noise: Noise of the first candidate.
            generators: One per row, for the noise of the others (`policies.noise.draw_noise`).
        """

    @abstractmethod
    def select(self, candidates: Float[Tensor, "B N H A"], request: ChunkRequest) -> Int[Tensor, " B"]:
        """Return the index of the chosen candidate per row, 0 .. N - 1."""
