"""The residual corrector: a small bounded network added to the base action.

a = a_b + gain * scale * tanh(mean(x, a_b)), after ResFiT (arXiv 2509.19301, section 4), with the squashed
Gaussian of SAC (arXiv 1812.05905, appendix C) for exploration. The head starts at zero, so that an untrained
corrector returns the base action bit-equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from data import config as configuration
from robot_rl.correct.corrector import Correction, Corrector, CorrectorInput
from robot_rl.correct.inputs import InputConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from numpy.typing import ArrayLike

LOG_STD_RANGE = (-4.0, 0.5)
"""Bounds of the log standard deviation before the tanh."""


@dataclass(frozen=True)
class ResidualConfig:
    """Shape of a residual corrector.

    Attributes:
        inputs: What it reads.
        width: Units of a hidden layer.
        clip: Normalised inputs are limited to this many standard deviations.
    """

    inputs: InputConfig
    width: int = 128
    clip: float = 5.0


class ResidualNetwork(nn.Module):
    """Mean and log standard deviation of the correction before tanh, and the fixed scales around it.

    Args:
        config: Its shape.
        mean: Mean of the input vector, (D,).
        std: Standard deviation of the input vector, (D,), floored by the caller.
        scale: Greatest correction per dimension, (A,), robot units; 0 leaves a dimension alone.
        action_unit: What base and executed actions are divided by for the networks, (A,), robot units.
    """

    mean: Tensor
    std: Tensor
    scale: Tensor
    action_unit: Tensor

    def __init__(
        self,
        config: ResidualConfig,
        mean: ArrayLike,
        std: ArrayLike,
        scale: ArrayLike,
        action_unit: ArrayLike,
    ) -> None:
        super().__init__()
        self.config = config
        for name, value in (("mean", mean), ("std", std), ("scale", scale), ("action_unit", action_unit)):
            self.register_buffer(name, torch.as_tensor(np.asarray(value), dtype=torch.float32).clone())
        actions = len(self.scale)
        width = config.width
        self.trunk = nn.Sequential(
            nn.Linear(len(self.mean) + actions, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 2 * actions)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def normalise(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Input vectors in standard deviations, limited to the configured range."""
        return ((x - self.mean) / self.std).clamp(-self.config.clip, self.config.clip)

    def forward(
        self, x: Float[Tensor, "B D"], base: Float[Tensor, "B A"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, "B A"]]:
        """Mean and log standard deviation before tanh.

        Args:
            x: Normalised inputs.
            base: Base action in action units.
        """
        mean, raw = self.head(self.trunk(torch.cat([x, base], -1))).chunk(2, -1)
        low, high = LOG_STD_RANGE
        return mean, low + (high - low) * (torch.tanh(raw) + 1) / 2

    def sample(
        self, x: Float[Tensor, "B D"], base: Float[Tensor, "B A"], noise: Float[Tensor, "B A"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        """A drawn correction in (-1, 1) and its log-density, by the change of variables through tanh."""
        mean, log_std = self(x, base)
        before = mean + log_std.exp() * noise
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        squash = 2 * (math.log(2) - before - F.softplus(-2 * before))
        return torch.tanh(before), (density - squash).sum(-1)


class ResidualCorrector(Corrector):
    """Adds the network's bounded correction to the base action of each step."""

    def __init__(self, network: ResidualNetwork) -> None:
        self.network = network
        self.history_keys = network.config.inputs.history_keys
        self.history_length = network.config.inputs.length
        self._scale = network.scale.double().numpy(force=True).copy()

    @torch.no_grad()
    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Correct the base actions of one step; see `Corrector.correct`."""
        network = self.network
        device = network.scale.device
        base = request.base_action
        x = network.normalise(torch.from_numpy(network.config.inputs.live(request)).to(device))
        unit = torch.from_numpy(base.astype(np.float32)).to(device) / network.action_unit
        log_prob = None
        if request.deterministic:
            share = torch.tanh(network(x, unit)[0])
        else:
            noise = np.stack([g.standard_normal(base.shape[1]) for g in request.generators])
            share, density = network.sample(x, unit, torch.from_numpy(noise.astype(np.float32)).to(device))
            log_prob = density.double().numpy(force=True)
        residual = share.double().numpy(force=True)
        correction = gain * self._scale * residual
        # Adding zero would turn a base action of -0.0 into 0.0.
        action = np.where(correction == 0.0, base, base + correction)
        return Correction(action, log_prob, {"residual": residual})

    def payload(self) -> dict[str, Any]:
        """Configuration, JSON types only."""
        payload: dict[str, Any] = configuration.to_dict(self.network.config)
        if not self.network.config.inputs.texts:
            del payload["inputs"]["texts"]  # as before there were any, so that versions stay
        return payload

    def tensors(self) -> dict[str, Tensor]:
        """The network's parameters and scales."""
        return dict(self.network.state_dict())

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a saved corrector."""
        config = configuration.from_dict(ResidualConfig, payload)
        fixed = [tensors[name].cpu() for name in ("mean", "std", "scale", "action_unit")]
        network = ResidualNetwork(config, *fixed).to(tensors["scale"].device)
        network.load_state_dict(dict(tensors))
        return cls(network.eval())
