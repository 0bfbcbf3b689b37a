"""A chunk critic together with the latents it reads: what guidance and selection by value share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.critics.chunk_fit import Judged
from robot_rl.guide.latents import Latents, LatentSource, encode_rows, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from data.records import Episode
    from policies.policy import Policy, PolicySpec


@dataclass(frozen=True, eq=False)
class ChunkValues:
    """Values of chunks in robot units.

    Attributes:
        latents: how an observation becomes a latent.
        critic: frozen.
    """

    latents: Latents
    critic: ChunkCritic

    def least(
        self, spec: PolicySpec, latent: Float[Tensor, "B D"], chunk: Float[Tensor, "B H A"]
    ) -> Float[Tensor, " B"]:
        """Return the least value of the ensemble for what is executed of a chunk; differentiable in it.

        Raises:
            ValueError: if the policy executes another number of steps than the critic knows.
        """
        steps = self.critic.sizes["steps"]
        if spec.executed_steps != steps:
            raise ValueError(
                f"the policy executes {spec.executed_steps} steps of a chunk, the critic knows {steps}: "
                "refine again for this policy"
            )
        return self.critic.least(latent, chunk[:, spec.executed].to(latent))

    def payload(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON types."""
        return {"latents": self.latents.payload(), "critic": self.critic.sizes}

    def tensors(self) -> dict[str, Tensor]:
        """Spread of the latents and weights of the critic."""
        return pack(self.latents, "critic", self.critic)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` gave, on the device of the tensors.

        Raises:
            ValueError: if the weights do not fit.
        """
        return cls(*unpack(payload, tensors, "critic", ChunkCritic))


def judge(policy: Policy, source: LatentSource, episodes: Sequence[Episode]) -> tuple[Latents, list[Judged]]:
    """Encode every observation of some episodes with the frozen policy.

    Args:
        policy: whose encoder is used.
        source: what of its encoding is taken.
        episodes: as the control loop recorded them.

    Returns:
        The latents' spread over the episodes, and the episodes in units of it.
    """
    found = [encode_rows(policy, source, each.observations, each.task) for each in episodes]
    raw = [rows for rows, _ in found]
    latents = Latents.fit(source, torch.cat(raw), found[0][1])
    scaled = [latents.scaled(each).numpy() for each in raw]
    return latents, [Judged(episode, rows) for episode, rows in zip(episodes, scaled, strict=True)]
