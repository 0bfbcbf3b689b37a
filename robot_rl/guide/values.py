"""A chunk critic together with the latents it reads: what guidance and selection by value share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.critics.chunk_fit import Judged
from robot_rl.guide.latents import Latents, LatentSource, encode_rows, pack, unpack
from robot_rl.task_texts import NO_TEXTS, TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from data.records import Episode
    from policies.context import Context
    from policies.policy import Policy, PolicySpec
    from policies.request import Observation


@dataclass(frozen=True, eq=False)
class ChunkValues:
    """Values of chunks in robot units.

    Attributes:
        latents: how an observation becomes a latent.
        critic: frozen.
        texts: of the tasks that the critic tells apart.
    """

    latents: Latents
    critic: ChunkCritic
    texts: TaskTexts = NO_TEXTS

    def read(self, observation: Observation, context: Context | None) -> Float[Tensor, "B D"]:
        """Return what the critic reads: latents, and behind them which of several tasks it is.

        Raises:
            ValueError: if a row is told none of the known tasks.
        """
        latent = self.latents.encode(observation, context)
        told = torch.from_numpy(self.texts.one_hot(self.texts.read(observation)))
        return torch.cat([latent, told.to(latent)], dim=1)

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
        told = {"texts": list(self.texts.texts)} if self.texts.texts else {}
        return {"latents": self.latents.payload(), "critic": self.critic.sizes, **told}

    def tensors(self) -> dict[str, Tensor]:
        """Spread of the latents and weights of the critic."""
        return pack(self.latents, "critic", self.critic)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` gave, on the device of the tensors.

        Raises:
            ValueError: if the weights do not fit.
        """
        texts = TaskTexts(tuple(payload.get("texts", ())))
        return cls(*unpack(payload, tensors, "critic", ChunkCritic), texts)


def judge(
    policy: Policy, source: LatentSource, episodes: Sequence[Episode], texts: TaskTexts
) -> tuple[Latents, list[Judged]]:
    """Encode every observation of some episodes with the frozen policy.

    Args:
        policy: whose encoder is used.
        source: what of its encoding is taken.
        episodes: as the control loop recorded them.
        texts: of the tasks to tell apart.

    Returns:
        The latents' spread over the episodes, and the episodes as `ChunkValues.read` gives them.
    """
    found = [encode_rows(policy, source, each.observations, each.task) for each in episodes]
    raw = [rows for rows, _ in found]
    latents = Latents.fit(source, torch.cat(raw), found[0][1])
    scaled = [latents.scaled(each).numpy() for each in raw]
    told = [texts.one_hot([each.task] * len(rows)) for each, rows in zip(episodes, scaled, strict=True)]
    seen = [np.concatenate(both, axis=1) for both in zip(scaled, told, strict=True)]
    return latents, [Judged(episode, rows) for episode, rows in zip(episodes, seen, strict=True)]
