"""The network of DSRL: it reads the observation and shifts and narrows the noise.

Steering a diffusion policy through its noise: Wagenmaker et al. 2025, arXiv 2506.15799. Along each chosen
direction the drawn noise z becomes

    y = c tanh(m(s)) + exp(l(s)) z

Deviation from the paper, whose policy is c tanh(m + exp(l) z), a squashed Gaussian that replaces the noise:
here the base's own noise is the exploration, so that the untrained policy (m = l = 0) is the base to the bit,
and what is not chosen stays as it was drawn. The paper's form is `NoiseSpaceConfig.form` "replace".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from robot_rl.noise.space import NoiseSpaceConfig, hat_basis, orthonormal

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

LEAST_LOG, MOST_LOG = -4.0, 0.25
"""Bounds of the logarithm of the spread; more noise than the base knows is hardly of use."""
NORMAL_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
"""Of one standard normal number, in nats."""


@dataclass(frozen=True)
class SteeringConfig:
    """Shape of a noise policy.

    Attributes:
        keys: Observation keys it reads, the newest step of each.
        horizon: H of the base.
        width: Z, last dimension of the base's noise.
        actions: A; noise beyond is padding and stays as drawn.
        space: What is chosen.
        hidden: Units of a hidden layer.
        clip: Normalised inputs are limited to this many standard deviations.
        sharpness: Power of the spread when nothing explores: 1 stays 1, and what was narrowed is narrowed
            further. Only for the form "edit"; "replace" acts by its mean.
        texts: Of the tasks that are told apart, if there are several: one number each, behind the keys.
    """

    keys: tuple[str, ...]
    horizon: int
    width: int
    actions: int
    space: NoiseSpaceConfig
    hidden: int = 256
    clip: float = 5.0
    sharpness: float = 1.0
    texts: tuple[str, ...] = ()


class Steered(NamedTuple):
    """A choice of noise.

    Attributes:
        noise: (B, H, Z).
        log_prob: How much less chance there is in it than in the base's noise, nats, (B,): log-density plus
            the entropy of as many standard normal numbers, 0 on average for the base's own.
        mean: Of the chosen numbers, in units of the bound, (B, K, A).
    """

    noise: Float[Tensor, "B H Z"]
    log_prob: Float[Tensor, " B"]
    mean: Float[Tensor, "B K A"]


class NoiseNetwork(nn.Module):
    """Mean and logarithm of the spread of K x A numbers, from the observation.

    Args:
        config: Its shape.
        mean: Mean of the input vector, (D,).
        std: Standard deviation of it, (D,), floored by the caller.
    """

    mean: Tensor
    std: Tensor
    read: Tensor
    write: Tensor

    def __init__(self, config: SteeringConfig, mean: ArrayLike, std: ArrayLike) -> None:
        super().__init__()
        self.config = config
        knots = config.space.knots(config.horizon)
        hat = hat_basis(knots, config.horizon)
        read = orthonormal(hat)
        write = read if config.space.form == "edit" else hat
        for name, value in (("mean", mean), ("std", std), ("read", read), ("write", write)):
            self.register_buffer(name, torch.as_tensor(np.asarray(value), dtype=torch.float32).clone())
        width = config.hidden
        self.trunk = nn.Sequential(
            nn.Linear(len(self.mean), width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 2 * knots * config.actions)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def freedom(self) -> int:
        """Numbers that are chosen, K x A."""
        return self.head.out_features // 2

    def normalise(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Input vectors in standard deviations, limited to the configured range."""
        return ((x - self.mean) / self.std).clamp(-self.config.clip, self.config.clip)

    def forward(self, x: Float[Tensor, "B D"]) -> tuple[Float[Tensor, "B K A"], Float[Tensor, "B K A"]]:
        """Mean before tanh and logarithm of the spread, from normalised inputs."""
        mean, raw = self.head(self.trunk(x)).unflatten(-1, (-1, self.config.actions)).chunk(2, -2)
        # Slope 1 on both sides of 0, where the untrained spread is exactly 1.
        bound = torch.where(raw > 0, MOST_LOG, -LEAST_LOG)
        return mean, bound * torch.tanh(raw / bound)

    def steer(
        self, x: Float[Tensor, "B D"], noise: Float[Tensor, "B H Z"], *, deterministic: bool = False
    ) -> Steered:
        """Choose noise.

        Args:
            x: Normalised inputs.
            noise: Drawn, standard normal.
            deterministic: Whether to leave out exploration.
        """
        mean, log_spread = self(x)
        drawn = self.along(noise)
        if self.config.space.form == "edit":
            return self._edited(mean, log_spread, noise, drawn, deterministic=deterministic)
        return self._replaced(mean, log_spread, noise, drawn, deterministic=deterministic)

    def _edited(
        self, mean: Tensor, log_spread: Tensor, noise: Tensor, drawn: Tensor, *, deterministic: bool
    ) -> Steered:
        power = self.config.sharpness if deterministic else 1.0
        spread = (power * log_spread).exp()
        # Not mean + spread drawn less drawn, which rounding would keep from 0.
        share = torch.tanh(mean)
        shift = self.config.space.bound * share + (spread - 1) * drawn
        return Steered(self._add(shift, noise), -log_spread.flatten(1).sum(-1), share)

    def _replaced(
        self, mean: Tensor, log_spread: Tensor, noise: Tensor, drawn: Tensor, *, deterministic: bool
    ) -> Steered:
        before = mean if deterministic else mean + log_spread.exp() * drawn
        whole = self._put(self.config.space.bound * torch.tanh(before), noise)
        density = -0.5 * drawn**2 - log_spread - 0.5 * math.log(2 * math.pi)
        squash = 2 * (math.log(2) - before - F.softplus(-2 * before)) + math.log(self.config.space.bound)
        log_prob = (density - squash + NORMAL_ENTROPY).flatten(1).sum(-1)
        return Steered(whole, log_prob, torch.tanh(mean))

    def place(
        self,
        chosen: Float[Tensor, "B K A"],
        noise: Float[Tensor, "B H Z"],
        drawn: Float[Tensor, "B K A"],
    ) -> Float[Tensor, "B H Z"]:
        """Noise with the chosen numbers in it, in the configured form.

        Args:
            chosen: In place of `drawn`.
            noise: Drawn, standard normal.
            drawn: The same, read along the chosen directions.
        """
        if self.config.space.form == "edit":
            return self._add(chosen - drawn, noise)
        return self._put(chosen, noise)

    def _add(self, shift: Tensor, noise: Tensor) -> Tensor:
        edit = self._spread_out(shift, noise)
        # Adding zero would turn a noise of -0.0 into 0.0; elsewhere the sum stays, for its gradient.
        return torch.where((edit == 0) & (noise == 0), noise, noise + edit)

    def _put(self, chosen: Tensor, noise: Tensor) -> Tensor:
        actions = self.config.actions
        return torch.cat([self._spread_out(chosen, noise)[..., :actions], noise[..., actions:]], -1)

    def _spread_out(self, chosen: Float[Tensor, "B K A"], noise: Float[Tensor, "B H Z"]) -> Tensor:
        """Chosen numbers over the horizon, (B, H, Z), zero in padded dimensions."""
        out = torch.einsum("kh,bka->bha", self.write, chosen)
        return F.pad(out, (0, noise.shape[-1] - self.config.actions))

    def along(self, noise: Float[Tensor, "B H Z"]) -> Float[Tensor, "B K A"]:
        """Noise read along the chosen directions; standard normal where the noise is."""
        return torch.einsum("kh,bha->bka", self.read.to(noise.device), noise[..., : self.config.actions])

    def critic_view(self, noise: Float[Tensor, "B H Z"]) -> Float[Tensor, "B F"]:
        """Noise as a critic reads it, along the chosen directions, flat; the rest is chance to it.

        What is left as drawn says little about the outcome, and a critic of fewer numbers needs less data.
        """
        return self.along(noise).flatten(1)
