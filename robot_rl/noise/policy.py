"""What a noise policy sees and returns: the starting point of the denoising, chosen instead of drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from policies.request import ChunkRequest


class NoisePolicy(ABC):
    """Chooses the initial noise of a chunk (DSRL, arXiv 2506.15799). Rows are independent.

    Attributes:
        keys: Observations it reads; they are in the request whether the base reads them or not. "task" is
            the text.
    """

    keys: tuple[str, ...] = ()

    @abstractmethod
    def propose(
        self, request: ChunkRequest, noise: Float[Tensor, "B H Z"], *, deterministic: bool
    ) -> Float[Tensor, "B H Z"]:
        """Return the noise to denoise from.

        Args:
            request: Observation and execution state of B rows.
            noise: What the loop drew, standard normal, each row from its own generator; the only source of
                exploration.
            deterministic: Whether to choose without exploration.
        """
