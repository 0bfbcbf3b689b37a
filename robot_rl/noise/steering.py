"""The noise policy of DSRL, as refiners hold it: the network chooses the noise of each chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch

from data import config as configuration
from robot_rl.correct.history import require_keys
from robot_rl.noise.network import NoiseNetwork, SteeringConfig
from robot_rl.noise.policy import NoisePolicy
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from policies.request import ChunkRequest


class SteeredNoise(NoisePolicy):
    """Chooses the noise of each chunk with a `NoiseNetwork`."""

    def __init__(self, network: NoiseNetwork) -> None:
        self.network = network
        self._told = TaskTexts(network.config.texts)
        self.keys = (*network.config.keys, *self._told.keys)

    @torch.no_grad()
    def propose(
        self, request: ChunkRequest, noise: Float[Tensor, "B H Z"], *, deterministic: bool
    ) -> Float[Tensor, "B H Z"]:
        """Steer the drawn noise; see `NoisePolicy.propose`."""
        network = self.network
        config = network.config
        if tuple(noise.shape[1:]) != (config.horizon, config.width):
            raise ValueError(
                f"The base draws noise of shape {tuple(noise.shape[1:])}; this noise policy was made for "
                f"{(config.horizon, config.width)}."
            )
        told = torch.from_numpy(self._told.one_hot(self._told.read(request.observation)))
        seen = newest(request, config.keys).to(network.mean.device)
        x = network.normalise(torch.cat([seen, told.to(seen)], -1))
        chosen = network.steer(x, noise.to(x.device), deterministic=deterministic)
        return chosen.noise.to(noise.device)

    def payload(self) -> dict[str, Any]:
        """Configuration, JSON types only."""
        payload: dict[str, Any] = configuration.to_dict(self.network.config)
        if not self.network.config.texts:
            del payload["texts"]  # as before there were any, so that versions stay
        return payload

    def tensors(self) -> dict[str, Tensor]:
        """The network's parameters, bases and scales."""
        return dict(self.network.state_dict())

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a saved noise policy."""
        config = configuration.from_dict(SteeringConfig, payload)
        network = NoiseNetwork(config, tensors["mean"].cpu(), tensors["std"].cpu())
        network.load_state_dict(dict(tensors))
        return cls(network.to(tensors["mean"].device).eval())


def newest(request: ChunkRequest, keys: tuple[str, ...]) -> Float[Tensor, "B D"]:
    """The newest step of some observations, flat and side by side.

    Raises:
        ValueError: One is missing, or not finite.
    """
    seen = {key: value for key, value in request.observation.items() if isinstance(value, torch.Tensor)}
    require_keys(seen, keys, who="The noise policy")
    parts = [seen[key][:, -1].flatten(1).float() for key in keys]
    x = torch.cat(parts, -1)
    if not bool(x.isfinite().all()):
        raise ValueError(f"Of the observations {list(keys)} some hold values that are not finite.")
    return x
