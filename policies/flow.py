"""The native policy: conditional flow matching on action chunks (Lipman et al. 2023; Black et al. 2024).

Deviation from pi0: sigma runs from 1 (noise) to 0, the project's convention, and the network is a small MLP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from data import config as configuration
from data import features as feature_json
from data.features import Feature
from data.statistics import ScalingRule, scaling
from hardware.action_spec import ActionSpec
from policies.context import TensorContext
from policies.flow_config import TASK, FlowConfig
from policies.flow_loss import draw_sigma, drop_conditions, matching_loss
from policies.hashing import policy_hash
from policies.networks import VelocityNetwork
from policies.normalizer import Normalizer
from policies.observation_encoder import Constant, ObservationEncoder
from policies.policy import PolicySpec, Supports, TrainablePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from data.statistics import FeatureStatistics
    from policies.context import Context
    from policies.request import ActionBatch, Condition, Observation


class FlowPolicy(nn.Module, TrainablePolicy):
    """A small flow-matching policy over action chunks.

    Args:
        config: inputs and sizes.
        features: key -> Feature; those that `config.inputs` names are kept.
        action_spec: of the A action dimensions.

    Raises:
        ValueError: if an input has no feature.
    """

    def __init__(self, config: FlowConfig, features: Mapping[str, Feature], action_spec: ActionSpec) -> None:
        super().__init__()
        self.config = config
        used = {key: features[key] for key in config.inputs if key in features}
        self.encoder = ObservationEncoder(config, used)
        self.action_normalizer = Normalizer("action", action_spec.names)
        self.network = VelocityNetwork(
            config.horizon,
            action_spec.size,
            self.encoder.size,
            hidden=config.hidden,
            layers=config.layers,
            frequencies=config.frequencies,
            predicts_clean=config.prediction == "clean",
        )
        self._spec = _spec(config, used, action_spec)
        if config.relative_to is not None and used[config.relative_to].shape != (action_spec.size,):
            raise ValueError(
                f"relative_to {config.relative_to!r} has shape {used[config.relative_to].shape}; "
                f"it must be ({action_spec.size},) like the action"
            )

    def fit(self, statistics: Mapping[str, FeatureStatistics], *, constant: Constant = "clamp") -> Self:
        """Set all normalisers from statistics of the training data.

        Args:
            statistics: of each vector input and of "action" (of action minus origin if `relative_to` is set).
            constant: what becomes of a dimension that hardly moved; see `data.statistics.ScalingRule`.

        Raises:
            NormalizationError: naming the feature and dimension that cannot be normalised.
        """
        self.encoder.fit(statistics, constant=constant)
        spec = self._spec.action_spec
        action = Feature((spec.size,), "float32", names=spec.names)
        limits = None if self.config.relative_to is not None else (spec.low, spec.high)
        rule = ScalingRule(mode=self.config.action_normalization, constant=constant)
        self.action_normalizer.fit(scaling("action", action, statistics, rule, limits=limits))
        return self

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts of this policy."""
        return self._spec

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.action_normalizer.offset.device

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Encode the observation; see `ChunkPolicy.encode`."""
        placed = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in observation.items()}
        tensors = {"projected": self.network.project(self.encoder(placed, condition))}
        if self.config.relative_to is not None:
            tensors["origin"] = self.encoder.vector(self.config.relative_to, placed)[:, -1:]
        return TensorContext(tensors)

    def velocity(
        self, x: Float[Tensor, "B H A"], sigma: Float[Tensor, " B"] | Float[Tensor, "B H"], context: Context
    ) -> Float[Tensor, "B H A"]:
        """Return v = eps - a at x; see `ChunkPolicy.velocity`."""
        assert isinstance(context, TensorContext)
        output: Tensor = self.network(x, sigma, context["projected"])
        return output

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return equally spaced noise levels from 1 to 0.

        Args:
            steps: number of steps; None: as configured.
        """
        count = self.config.steps if steps is None else steps
        if count < 1:
            raise ValueError(f"steps is {count}; at least one denoising step is needed")
        return torch.linspace(1.0, 0.0, count + 1, device=self.device)

    def decode(self, x: Float[Tensor, "B H A"], context: Context) -> Float[Tensor, "B H A"]:
        """Return actions in robot units; differentiable."""
        assert isinstance(context, TensorContext)
        action = self.action_normalizer.denormalize(x)
        return action if self.config.relative_to is None else action + context["origin"]

    def encode_action(self, action: Float[Tensor, "B H A"], context: Context) -> Float[Tensor, "B H A"]:
        """Return robot-unit actions in the space of x."""
        assert isinstance(context, TensorContext)
        placed = action.to(self.device, torch.float32)
        return self.action_normalizer.normalize(
            placed if self.config.relative_to is None else placed - context["origin"]
        )

    def flow_loss(
        self,
        batch: ActionBatch,
        noise: Float[Tensor, "B H A"] | None = None,
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"] | None = None,
        weights: Float[Tensor, " B"] | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, " B"]:
        """Return the flow-matching loss per row; see `TrainablePolicy.flow_loss`."""
        share = self.config.condition_dropout if self.training else 0.0
        return matching_loss(
            self, drop_conditions(batch, share), noise=noise, sigma=sigma, weights=weights, mask=mask
        )

    def draw_sigma(self, rows: int, generator: torch.Generator | None = None) -> Float[Tensor, " B"]:
        """Draw training noise levels.

        Args:
            rows: B.
            generator: on the CPU; None: torch's global one.
        """
        return draw_sigma(rows, self.config.sigma_sampling, generator).to(self.device)

    def student(self, kind: Literal["copy", "lora"] = "copy", *, rank: int = 8) -> TrainablePolicy:
        """Return a student that starts equal to this policy; see `TrainablePolicy.student`."""
        from policies.student import make_student

        return make_student(self, kind, rank)

    def hash(self) -> str:
        """Return the SHA-256 of parameters and buffers."""
        return policy_hash(self)

    def payload(self) -> dict[str, Any]:
        """Return everything but the tensors, as JSON types; `from_payload` reads it."""
        return {
            "config": configuration.to_dict(self.config),
            "features": feature_json.to_json(self._spec.features),
            "action_spec": self._spec.action_spec.to_json(),
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Build the policy that `payload` describes; its tensors are still to be loaded.

        Raises:
            ValueError: if the payload is incomplete or names unknown settings.
        """
        return cls(
            configuration.from_dict(FlowConfig, payload["config"]),
            feature_json.from_json(payload["features"]),
            ActionSpec.from_json(payload["action_spec"]),
        )


def _spec(config: FlowConfig, features: Mapping[str, Feature], action_spec: ActionSpec) -> PolicySpec:
    return PolicySpec(
        name="flow",
        features=dict(features),
        action_spec=action_spec,
        observation_steps=config.observation_steps,
        horizon=config.horizon,
        executed_steps=config.executed_steps,
        first_action=config.first_action,
        rate_hz=action_spec.rate_hz,
        supports=Supports(
            noise=True,
            velocity=True,
            gradients=True,
            conditions=config.conditions,
            unconditional=config.condition_dropout > 0,
        ),
        reads_task=TASK in config.inputs,
    )
