"""The schedulers of LeRobot's diffusion policies, DDPM and DDIM, as functions of a step's number.

The objects of diffusers remember the steps they were last set to and draw their own noise. Here the noise
comes
in, row by row, and nothing is remembered. The order of the arithmetic is theirs, so that the result is equal
to
the bit (tests compare).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_SMALLEST = 1e-20


class Scheduler:
    """Steps of a variance-preserving process (Ho et al. 2020; Song et al. 2021).

    Args:
        scheduler: of diffusers, as LeRobot made it from its configuration.
        steps: number of denoising steps that the policy takes by default.

    Raises:
        ValueError: if its kind of prediction or final step is none that LeRobot uses.
    """

    def __init__(self, scheduler: Any, steps: int) -> None:  # noqa: ANN401 - diffusers ships no usable types
        settings = scheduler.config
        if settings.prediction_type not in {"epsilon", "sample"}:
            raise ValueError(f"prediction_type is {settings.prediction_type!r}, not epsilon or sample")
        self.predicts_clean: bool = settings.prediction_type == "sample"
        self.draws_noise: bool = type(scheduler).__name__ == "DDPMScheduler"
        self.steps = steps
        self._original = scheduler
        self._clip = float(settings.clip_sample_range) if settings.clip_sample else None
        self._table: Tensor = scheduler.alphas_cumprod.clone()
        self._last: Tensor = torch.tensor(1.0) if self.draws_noise else scheduler.final_alpha_cumprod.clone()
        self._timesteps: dict[int, Int[Tensor, " N"]] = {}
        self._alpha_bars: dict[tuple[int, str], Float[Tensor, " N"]] = {}

    def timesteps(self, steps: int | None = None) -> Int[Tensor, " N"]:
        """Return the training timesteps at which the network is asked, falling.

        Args:
            steps: number of them; None: the policy's own.

        Raises:
            ValueError: if there are none, or more than in training.
        """
        count = self.steps if steps is None else steps
        if not 1 <= count <= len(self._table):
            raise ValueError(f"steps is {count}; 1 to {len(self._table)} denoising steps are possible")
        if count not in self._timesteps:
            fresh = type(self._original).from_config(self._original.config)
            fresh.set_timesteps(count)
            self._timesteps[count] = fresh.timesteps.clone()
        return self._timesteps[count]

    def alpha_bars(self, steps: int | None = None, device: torch.device | str = "cpu") -> Float[Tensor, " N"]:
        """Return abar before each step and after the last; see `VariancePreservingPolicy.alpha_bars`."""
        key = (self.steps if steps is None else steps, str(device))
        if key not in self._alpha_bars:
            levels = torch.cat([self._table[self.timesteps(steps)], self._last[None]])
            self._alpha_bars[key] = levels.to(device)
        return self._alpha_bars[key]

    def level_of(self, time: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return abar at training timesteps."""
        return self._table.to(time.device)[time]

    def timestep_of(self, alpha_bar: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the training timestep with this abar, between two of them where it lies between theirs.

        Args:
            alpha_bar: noise levels; those of the training table give whole numbers exactly.
        """
        table = self._table.to(alpha_bar)
        lower = torch.searchsorted(-table, -alpha_bar, right=True).clamp(1, len(table) - 1) - 1
        above, below = table[lower], table[lower + 1]
        return lower + ((above - alpha_bar) / (above - below)).clamp(0, 1)

    def step(
        self, index: int, steps: int, native: Tensor, prediction: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Return the next native state.

        Args:
            index: 0 .. steps - 1.
            steps: number of denoising steps.
            native: (B, H, Z) before the step.
            prediction: what the network says of it, noise or clean chunk.
            noise: (B, H, Z) fresh noise for DDPM; None for DDIM.
        """
        # On the CPU whatever the device of the chunk, as diffusers has them: roots round alike only there.
        now, then = self.alpha_bars(steps)[index : index + 2]
        rest = 1 - now
        clean = prediction if self.predicts_clean else (native - rest**0.5 * prediction) / now**0.5
        clipped = clean if self._clip is None else clean.clamp(-self._clip, self._clip)
        if self.draws_noise:
            return _ddpm(native, clipped, now, then, noise if index < steps - 1 else None)
        eps = (native - now**0.5 * clean) / rest**0.5 if self.predicts_clean else prediction
        # Song et al. 2021, eq. 12 with eta = 0; the noise is the one before the clean chunk was clipped.
        following: Tensor = then**0.5 * clipped + (1 - then) ** 0.5 * eps
        return following


def _ddpm(native: Tensor, clean: Tensor, now: Tensor, then: Tensor, noise: Tensor | None) -> Tensor:
    """Ho et al. 2020, eq. 7, with the smaller of its two variances, or its mean for the last step."""
    rest, rest_then = 1 - now, 1 - then
    alpha = now / then
    beta = 1 - alpha
    mean = (then**0.5 * beta) / rest * clean + alpha**0.5 * rest_then / rest * native
    if noise is None:
        return mean
    return mean + torch.clamp(rest_then / rest * beta, min=_SMALLEST) ** 0.5 * noise
