"""A small flow over chunks in the space of another policy's x: what proxy steering trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from data import features as feature_json
from data.config import from_dict, to_dict
from policies.flow_config import FlowConfig
from policies.networks import VelocityNetwork
from policies.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from data.features import Feature
    from policies.request import Observation


class Proxy(nn.Module):
    """Observation encoder and velocity network; actions stay in the normalised, padded space of the base.

    Args:
        config: inputs, sizes, and the base's horizon and number of observations.
        features: key -> Feature of the inputs.
        width: Z, last dimension of the base's x.
    """

    def __init__(self, config: FlowConfig, features: Mapping[str, Feature], width: int) -> None:
        super().__init__()
        self.config, self.width = config, width
        self.features = {key: features[key] for key in config.inputs if key in features}
        self.encoder = ObservationEncoder(config, self.features)
        self.network = VelocityNetwork(
            config.horizon,
            width,
            self.encoder.size,
            hidden=config.hidden,
            layers=config.layers,
            frequencies=config.frequencies,
            predicts_clean=config.prediction == "clean",
        )

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.network.frequencies.device

    def encode(self, observation: Observation) -> Float[Tensor, "B D"]:
        """Read the observation; once per chunk."""
        placed = {k: v.to(self.device) if isinstance(v, torch.Tensor) else v for k, v in observation.items()}
        code: Tensor = self.network.project(self.encoder(placed))
        return code

    def velocity(
        self, x: Float[Tensor, "B H Z"], sigma: Float[Tensor, " B"], code: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B H Z"]:
        """Return v = eps - a at x.

        Args:
            x: in the base's space.
            sigma: noise levels.
            code: of `encode`.
        """
        output: Tensor = self.network(x, sigma, code)
        return output

    def payload(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON types."""
        return {
            "config": to_dict(self.config),
            "features": feature_json.to_json(self.features),
            "width": self.width,
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Build what `payload` describes; its tensors are still to be loaded.

        Raises:
            ValueError: if the payload is incomplete or names unknown settings.
        """
        return cls(
            from_dict(FlowConfig, payload["config"]),
            feature_json.from_json(payload["features"]),
            int(payload["width"]),
        )
