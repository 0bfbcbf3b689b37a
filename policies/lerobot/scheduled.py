"""What LeRobot's policies with a DDPM or DDIM scheduler share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from policies.lerobot.base import LeRobotChunkPolicy
from policies.policy import PolicySpec, Supports
from policies.variance_preserving import VariancePreservingPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jaxtyping import Float, Int

    from policies.lerobot.processors import Processors
    from policies.lerobot.scheduler import Scheduler
    from policies.request import ActionBatch

IMAGES = "observation.images"
"""Key under which LeRobot's encoders read the stacked cameras."""


class ScheduledPolicy(LeRobotChunkPolicy, VariancePreservingPolicy):
    """What LeRobot's policies with a DDPM or DDIM scheduler share; see `VariancePreservingPolicy`.

    Args:
        model: LeRobot's policy.
        processors: its pre- and post-processing.
        spec: its fixed facts.
        keys: key of the checkpoint -> robot key, of every observation.
        payload: see `policies.lerobot.payload.read_payload`.
    """

    keeps_time: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        processors: Processors,
        spec: PolicySpec,
        keys: Mapping[str, str],
        payload: Mapping[str, Any],
    ) -> None:
        super().__init__(model, processors, spec, keys, payload)
        self.scheduler = self.make_scheduler()
        self.predicts = "clean" if self.scheduler.predicts_clean else "noise"

    @classmethod
    def supports(cls, config: Any) -> Supports:  # noqa: ANN401 - a configuration of LeRobot
        """Return that the denoising is open, with fresh noise at every step for DDPM."""
        fresh = config.noise_scheduler_type == "DDPM"
        return Supports(noise=True, velocity=True, gradients=True, step_noise=fresh)

    def make_scheduler(self) -> Scheduler:
        """Return the steps of the process."""
        raise NotImplementedError

    def alpha_bars(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return abar before each step and after the last."""
        return self.scheduler.alpha_bars(steps, self.device)

    def denoising_loss(
        self, batch: ActionBatch, noise: Float[Tensor, "B H A"], time: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return what this policy's own training minimises, per row (Ho et al. 2020, eq. 14).

        Args:
            batch: observations and robot-unit chunks.
            noise: eps.
            time: training timestep of each row, below `num_train_timesteps`.
        """
        context = self.encode(batch.observation, batch.condition)
        with torch.no_grad():
            clean = self.encode_action(batch.action, context)
        level = self.scheduler.level_of(time)[:, None, None]
        native = level.sqrt() * clean + (1 - level).sqrt() * noise
        said = self.predict(native, level.flatten(), context)
        error = (said - (clean if self.predicts == "clean" else noise)).square().mean(dim=2)
        if batch.mask is None:
            return error.mean(dim=1)
        valid = batch.mask.to(error)
        return (error * valid).sum(dim=1) / valid.sum(dim=1).clamp(min=1)

    def scheduler_step(
        self, index: int, native: Tensor, prediction: Tensor, alpha_bars: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Return the next native state; see `VariancePreservingPolicy.scheduler_step`."""
        return self.scheduler.step(index, len(alpha_bars) - 1, native, prediction, noise)

    def images(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a prepared observation with its cameras stacked, as LeRobot's encoders read them."""
        cameras = list(self.model.config.image_features)
        if not cameras:
            return batch
        return {**batch, IMAGES: torch.stack([batch[key] for key in cameras], dim=-4)}


def with_stacked_images(batch: dict[str, Tensor], cameras: Iterable[str]) -> dict[str, Tensor]:
    """Return a prepared observation with its cameras stacked, as LeRobot's encoders read them.

    Args:
        batch: key -> (B, T, ...).
        cameras: their keys, in the order of the configuration; none leaves the batch as it is.
    """
    images = [batch[key] for key in cameras]
    return {**batch, IMAGES: torch.stack(images, dim=-4)} if images else batch
