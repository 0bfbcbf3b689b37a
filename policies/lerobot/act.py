"""ACT (Zhao et al. 2023): one pass from observation to chunk. There is no denoising to guide."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from policies.lerobot.base import LeRobotPolicy
from policies.policy import Supports, refuse_opaque

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.request import ChunkRequest, Condition, Observation


class ActPolicy(LeRobotPolicy):
    """LeRobot's ACT: its chunk is a function of the observation alone, so selectors and correctors apply.

    Temporal ensembling is LeRobot's loop, not its network: a chunk here is what the network says.
    """

    opaque_because: ClassVar[str] = "ACT computes its chunk in one pass, without noise or denoising"

    @classmethod
    def supports(cls, config: object) -> Supports:
        """Return that it offers nothing beyond chunks."""
        del config
        return Supports()

    @torch.no_grad()
    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H A"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row in robot units; see `Policy.chunk`.

        Raises:
            PolicyError: if noise is given.
            ValueError: if a condition is given.
        """
        if noise is not None:
            refuse_opaque(self, f"choosing its noise ({self.opaque_because})")
        if condition is not None:
            raise ValueError(f"policy {self.spec.name!r} takes no condition, got {condition!r}")
        normal = self.original(request.observation)
        return self.processors.denormalize(normal.to(torch.float32))

    @torch.no_grad()
    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk; see `LeRobotPolicy.original`."""
        del noise, step_noise
        self.model.reset()
        chunk: Tensor = self.model.predict_action_chunk(self.prepare(observation))
        return chunk
