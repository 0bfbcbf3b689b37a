"""Which noises a noise policy can choose: how few numbers become the noise of a whole chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BOUND = 10.0
"""Far beyond what a base was ever given."""


@dataclass(frozen=True)
class NoiseSpaceConfig:
    """What of a chunk's noise is chosen, and how far.

    Attributes:
        parameters: "low-rank": `rank` vectors at positions spread over the horizon, interpolated between
            them; "full": every element is chosen, as in the paper, which takes far more episodes; "repeated":
            one vector for all positions.
        rank: Of "low-rank".
        form: "edit": the drawn noise z becomes mean + spread z along the chosen directions, and what is not
            chosen stays as drawn. Untrained (mean 0, spread 1) this is z itself, and low-rank and repeated
            choices stay plausible noise. "replace", as in the paper: c tanh(mean + spread z) in place of z;
            untrained it changes what the base does, and repeated noise may be none that the base knows.
        bound: c, greatest size of the mean in standard deviations of the base's noise; of the noise itself
            with "replace". 0 with "edit" leaves the spread alone to be learned, a negative control.
    """

    parameters: Literal["full", "low-rank", "repeated"] = "low-rank"
    rank: int = 4
    form: Literal["edit", "replace"] = "edit"
    bound: float = 1.5

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; it must be at least 1.")
        least = 0.0 if self.form == "edit" else 1e-3
        if not least <= self.bound <= MOST_BOUND:
            raise ValueError(
                f"bound is {self.bound}; with form {self.form!r} it must lie in {least:g} .. {MOST_BOUND:g}."
            )

    def knots(self, horizon: int) -> int:
        """Vectors K that are chosen.

        Args:
            horizon: H of the base.

        Raises:
            ValueError: The rank is above the horizon.
        """
        if self.parameters == "low-rank" and self.rank > horizon:
            raise ValueError(f"rank is {self.rank}, above the horizon {horizon}; choose parameters 'full'.")
        return {"full": horizon, "low-rank": self.rank, "repeated": 1}[self.parameters]


def hat_basis(knots: int, horizon: int) -> NDArray[np.float32]:
    """Piecewise linear interpolation between positions spread over the horizon, (K, H); columns sum to 1.

    Args:
        knots: K; one is constant, `horizon` are the identity.
        horizon: H.
    """
    if knots == 1:
        return np.ones((1, horizon), np.float32)
    places = np.linspace(0, horizon - 1, knots)
    rows = [np.interp(np.arange(horizon), places, unit) for unit in np.eye(knots)]
    return np.stack(rows).astype(np.float32)


def orthonormal(basis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Orthonormal rows with the same span, (K, H): standard normal noise read along them is standard normal.

    Args:
        basis: (K, H) of full rank; the identity stays the identity to the bit.
    """
    q, r = np.linalg.qr(basis.T.astype(np.float64))
    turned = q * np.sign(np.diag(r))
    return np.ascontiguousarray(turned.T, np.float32)
