"""pi0.5 (Intelligence et al. 2025) as LeRobot trains it: the state is written into the text, in 256 bins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.lerobot.openpi import OpenPiPolicy

if TYPE_CHECKING:
    from torch import Tensor

    from policies.context import TensorContext


class Pi05Policy(OpenPiPolicy):
    """A pi0.5, frozen and opened."""

    def denoise(self, x: Tensor, sigma: Tensor, context: TensorContext, cache: Any) -> Tensor:  # noqa: ANN401 - a cache of transformers
        """Return LeRobot's velocity."""
        velocity: Tensor = self.model.model.denoise_step(
            prefix_pad_masks=context["mask"], past_key_values=cache, x_t=x, timestep=sigma
        )
        return velocity
