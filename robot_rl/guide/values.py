"""A chunk critic together with the latents it reads: what guidance and selection by value share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from policies.policy import ChunkPolicy
from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.critics.chunk_fit import Judged
from robot_rl.guide.latents import Latents, LatentSource
from robot_rl.learn.state_tensors import below
from robot_rl.noise.chunks import windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from data.records import Episode
    from policies.policy import Policy, PolicySpec
    from policies.request import Observation

_BATCH = 256


@dataclass(frozen=True, eq=False)
class ChunkValues:
    """Values of chunks in robot units.

    Attributes:
        latents: how an observation becomes a latent.
        critic: frozen.
    """

    latents: Latents
    critic: ChunkCritic

    def latent(self, policy: Policy, observation: Observation) -> Float[Tensor, "B D"]:
        """Return the latents of B observations, without a graph."""
        return self.latents.scaled(_raw(self.latents.source, policy, observation))

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
        return self.critic.least(latent, chunk[:, executed_span(spec)].to(latent))

    def payload(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON types."""
        return {"latents": self.latents.payload(), "critic": self.critic.sizes}

    def tensors(self) -> dict[str, Tensor]:
        """Spread of the latents and weights of the critic."""
        return {
            **{f"latents.{key}": value for key, value in self.latents.tensors().items()},
            **{f"critic.{key}": value for key, value in self.critic.state_dict().items()},
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` gave, on the device of the tensors.

        Raises:
            ValueError: if the weights do not fit.
        """
        latents = Latents.from_payload(payload["latents"], below(tensors, "latents."))
        critic = ChunkCritic(**payload["critic"])
        try:
            critic.load_state_dict(below(tensors, "critic."))
        except RuntimeError as error:
            raise ValueError(f"the weights of the critic do not fit: {error}") from error
        return cls(latents, critic.requires_grad_(False).eval().to(latents.mean.device))


def executed_span(spec: PolicySpec) -> slice:
    """Positions of a chunk that are executed."""
    return slice(spec.first_action, spec.first_action + spec.executed_steps)


def judge(policy: Policy, source: LatentSource, episodes: Sequence[Episode]) -> tuple[Latents, list[Judged]]:
    """Encode every observation of some episodes with the frozen policy.

    Args:
        policy: whose encoder is used.
        source: what of its encoding is taken.
        episodes: as the control loop recorded them.

    Returns:
        The latents' spread over the episodes, and the episodes in units of it.
    """
    raw = [_episode(policy, source, episode) for episode in episodes]
    latents = Latents.fit(source, torch.cat(raw), raw[0].shape[1])
    scaled = [latents.scaled(each).numpy() for each in raw]
    return latents, [Judged(episode, rows) for episode, rows in zip(episodes, scaled, strict=True)]


def _episode(policy: Policy, source: LatentSource, episode: Episode) -> Float[Tensor, "T D"]:
    seen = {
        key: windows(episode.observations[key], policy.spec.observation_steps) for key in policy.spec.features
    }
    parts = []
    for first in range(0, len(episode) + 1, _BATCH):
        rows = slice(first, first + _BATCH)
        observation: dict[str, Any] = {k: torch.from_numpy(np.array(v[rows])) for k, v in seen.items()}
        if policy.spec.reads_task:
            observation["task"] = [episode.task] * len(next(iter(observation.values())))
        parts.append(_raw(source, policy, observation).cpu())
    return torch.cat(parts)


@torch.no_grad()
def _raw(source: LatentSource, policy: Policy, observation: Observation) -> Float[Tensor, "B D"]:
    if not source.features:
        return source.raw(observation, None)[0]
    assert isinstance(policy, ChunkPolicy), "features were chosen for a policy that opens its encoder"
    return source.raw(observation, policy.encode(observation))[0]
