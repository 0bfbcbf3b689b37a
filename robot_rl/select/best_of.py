"""Best of N: the base proposes several chunks, a critic chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch

from policies.noise import draw_noise
from policies.policy import ChunkPolicy
from policies.sampler import denoise
from robot_rl.guide.values import ChunkValues
from robot_rl.select.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from jaxtyping import Float, Int
    from torch import Tensor

    from policies.policy import Policy
    from policies.request import ChunkRequest


class BestOf(Selector):
    """Chooses the chunk with the greatest least value of an ensemble; of equals the base's own.

    Costs N - 1 further chunks; a policy that opens its denoising encodes the observation once for all.

    Args:
        values: the critic and what it reads.
        count: N; 1 is the base to the bit.

    Raises:
        ValueError: if the count is below 1.
    """

    def __init__(self, values: ChunkValues, count: int = 8) -> None:
        if count < 1:
            raise ValueError(f"count is {count}; at least the base's own chunk is proposed.")
        self.values, self.count = values, count
        self.keys = values.texts.keys
        self._latent = torch.empty(0)
        self._spec: Any = None

    def propose(
        self,
        request: ChunkRequest,
        policy: Policy,
        noise: Float[Tensor, "B H Z"],
        generators: Sequence[np.random.Generator],
    ) -> Float[Tensor, "B N H A"]:
        """Return the base's own chunk and N - 1 others; see `Selector.propose`."""
        self._spec = policy.spec
        drawn = [draw_noise(policy.spec, generators) for _ in range(self.count - 1)]
        if not isinstance(policy, ChunkPolicy):
            self._latent = self.values.read(request.observation, None)
            return torch.stack([policy.chunk(request, each) for each in (noise, *drawn)], dim=1)
        with torch.no_grad():
            context = policy.encode(request.observation)
        self._latent = self.values.read(request.observation, context)
        own = denoise(policy, context, noise)[:, None]
        if not drawn:
            return own
        others = denoise(policy, context.repeat(len(drawn)), torch.stack(drawn, dim=1).flatten(0, 1))
        return torch.cat([own, others.view(len(own), len(drawn), *others.shape[1:])], dim=1)

    def select(self, candidates: Float[Tensor, "B N H A"], request: ChunkRequest) -> Int[Tensor, " B"]:
        """Return the index of the best candidate per row."""
        del request
        rows, count = candidates.shape[:2]
        latent = self._latent.repeat_interleave(count, 0)
        with torch.no_grad():
            value = self.values.least(self._spec, latent, candidates.flatten(0, 1))
        return value.view(rows, count).argmax(1)

    def payload(self) -> dict[str, Any]:
        """Configuration of selector and critic."""
        return {"values": self.values.payload(), "count": self.count}

    def tensors(self) -> dict[str, Tensor]:
        """Of the critic."""
        return self.values.tensors()

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild it; see `robot_rl.parts.SavedPart`."""
        return cls(ChunkValues.from_payload(payload["values"], tensors), payload["count"])
