"""pi0 (Black et al. 2024) as LeRobot trains it: the state is a token of the action expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.lerobot.openpi import OpenPiPolicy

if TYPE_CHECKING:
    from torch import Tensor

    from policies.context import TensorContext


class Pi0Policy(OpenPiPolicy):
    """A pi0, frozen and opened."""

    def encode_prefix(self, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """Encode the prefix; keep the state, which every step reads."""
        cache, tensors = super().encode_prefix(batch)
        return cache, {**tensors, "state": self.model.prepare_state(batch)}

    def denoise(self, x: Tensor, sigma: Tensor, context: TensorContext, cache: Any) -> Tensor:  # noqa: ANN401 - a cache of transformers
        """Return LeRobot's velocity."""
        velocity: Tensor = self.model.model.denoise_step(
            state=context["state"],
            prefix_pad_masks=context["mask"],
            past_key_values=cache,
            x_t=x,
            timestep=sigma,
        )
        return velocity
