"""Variance-preserving diffusion (DDPM, DDIM) seen through the project's sigma convention.

The native state is z = sqrt(abar) a + sqrt(1 - abar) eps. Divided by s = sqrt(abar) + sqrt(1 - abar) it
becomes x = (1 - sigma) a + sigma eps with sigma = sqrt(1 - abar) / s, so hooks written for flows apply
unchanged. A step that no hook touched is taken on z and the network's own output, so that it equals the
original to the bit.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

import torch

from policies.policy import ChunkPolicy, Evaluation

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from policies.context import Context


def view_scale(alpha_bar: Tensor) -> Tensor:
    """Return s = sqrt(abar) + sqrt(1 - abar), by which the native state is divided."""
    return alpha_bar.sqrt() + (1 - alpha_bar).sqrt()


def sigma_of(alpha_bar: Tensor) -> Tensor:
    """Return the noise level of the view, sqrt(1 - abar) / s, in [0, 1]."""
    return (1 - alpha_bar).sqrt() / view_scale(alpha_bar)


def alpha_bar_of(sigma: Tensor) -> Tensor:
    """Return abar of a noise level; the inverse of `sigma_of`."""
    return (1 - sigma).square() / ((1 - sigma).square() + sigma.square())


def noise_of(x: Tensor, velocity: Tensor, sigma: Tensor | float) -> Tensor:
    """Return eps = x + (1 - sigma) v, the noise that a view and its velocity imply."""
    return x + (1 - sigma) * velocity


def clean_of(native: Tensor, noise: Tensor, alpha_bar: Tensor) -> Tensor:
    """Return a for a native state and the noise predicted in it."""
    return (native - (1 - alpha_bar).sqrt() * noise) / alpha_bar.sqrt()


def velocity_of(native: Tensor, noise: Tensor, alpha_bar: Tensor) -> Tensor:
    """Return v = eps - a for a native state and the noise predicted in it."""
    return noise - clean_of(native, noise, alpha_bar)


class VariancePreservingPolicy(ChunkPolicy):
    """A chunk policy whose network looks at a variance-preserving state.

    A subclass implements `alpha_bars`, `predict` and `scheduler_step` besides `encode`, `decode` and
    `encode_action`.

    Attributes:
        predicts: what the network says: the "noise" in the state (epsilon), or the "clean" chunk (sample).
    """

    predicts: Literal["noise", "clean"] = "noise"

    @abstractmethod
    def alpha_bars(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return abar before each step and after the last, rising to 1; positive throughout."""

    @abstractmethod
    def predict(
        self, native: Float[Tensor, "B H Z"], alpha_bar: Float[Tensor, " B"], context: Context
    ) -> Float[Tensor, "B H Z"]:
        """Return what the network says of the native state; `predicts` says what that is."""

    @abstractmethod
    def scheduler_step(
        self, index: int, native: Tensor, prediction: Tensor, alpha_bars: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Return the next native state, as the original scheduler does.

        Args:
            index: 0 .. steps - 1.
            native: before the step.
            prediction: of `predict`.
            alpha_bars: as `alpha_bars` returned them.
            noise: fresh noise of this step; None for a deterministic scheduler.
        """

    def predict_noise(
        self, native: Float[Tensor, "B H Z"], alpha_bar: Float[Tensor, " B"], context: Context
    ) -> Float[Tensor, "B H Z"]:
        """Return the noise that the network sees in the native state."""
        return self._noise(native, self.predict(native, alpha_bar, context), alpha_bar[:, None, None])

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return the noise levels of the view."""
        return sigma_of(self.alpha_bars(steps))

    def velocity(
        self, x: Float[Tensor, "B H Z"], sigma: Float[Tensor, " B"] | Float[Tensor, "B H"], context: Context
    ) -> Float[Tensor, "B H Z"]:
        """Return v = eps - a at a view x; one noise level per row.

        Raises:
            ValueError: if sigma differs along the chunk, which such a network cannot read.
        """
        if sigma.ndim != 1:
            raise ValueError(f"policy {self.spec.name!r} takes one sigma per row, not {tuple(sigma.shape)}")
        alpha_bar = alpha_bar_of(sigma)
        spread = alpha_bar[:, None, None]
        native = x * view_scale(spread)
        return velocity_of(native, self.predict_noise(native, alpha_bar, context), spread)

    def evaluate(
        self, index: int, state: Tensor, sigmas: Tensor, context: Context, *, grad: bool = False
    ) -> Evaluation:
        """Run the network on the native state and show the view; see `ChunkPolicy.evaluate`."""
        alpha_bar = self.alpha_bars(len(sigmas) - 1)[index]
        scale = view_scale(alpha_bar)
        native = state.detach() if grad else state
        x = native / scale
        seen = native
        if grad:
            x = x.requires_grad_(True)
            # The native state to the bit (the difference is exact, Sterbenz 1974), yet a function of x.
            seen = x * scale + (native - (x * scale).detach())
        prediction = self.predict(seen, alpha_bar.expand(len(state)), context)
        noise = self._noise(seen, prediction, alpha_bar)
        clean = prediction if self.predicts == "clean" else clean_of(seen, noise, alpha_bar)
        return Evaluation(x, noise - clean, (native, prediction.detach()))

    def native_step(
        self,
        index: int,
        x: Float[Tensor, "B H Z"],
        velocity: Float[Tensor, "B H Z"],
        *,
        sigmas: Float[Tensor, " N"],
        evaluation: Evaluation,
        noise: Float[Tensor, "B H Z"] | None = None,
    ) -> Tensor:
        """Return the next native state; the original's own in rows that no hook changed."""
        alpha_bars = self.alpha_bars(len(sigmas) - 1)
        native, prediction = evaluation.native
        if x is not evaluation.x or velocity is not evaluation.velocity:
            # Rows with the values that the network saw stay native too: a hook may leave some of them alone.
            same = (x == evaluation.x) & (velocity == evaluation.velocity)
            kept = same.flatten(1).all(dim=1)[:, None, None]
            sigma = sigma_of(alpha_bars[index])
            guided = x - sigma * velocity if self.predicts == "clean" else noise_of(x, velocity, sigma)
            prediction = torch.where(kept, prediction, guided)
            native = torch.where(kept, native, x * view_scale(alpha_bars[index]))
        return self.scheduler_step(index, native, prediction, alpha_bars, noise)

    def _noise(self, native: Tensor, prediction: Tensor, alpha_bar: Tensor) -> Tensor:
        if self.predicts == "noise":
            return prediction
        return (native - alpha_bar.sqrt() * prediction) / (1 - alpha_bar).sqrt()
