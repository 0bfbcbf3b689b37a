"""LeRobot's Diffusion Policy (Chi et al. 2023), opened: a U-Net over the chunk, DDPM or DDIM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.context import TensorContext
from policies.lerobot.scheduled import ScheduledPolicy, with_stacked_images
from policies.lerobot.scheduler import Scheduler
from policies.parity import drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.context import Context
    from policies.request import Condition, Observation


class DiffusionPolicy(ScheduledPolicy):
    """LeRobot's `DiffusionPolicy`."""

    def make_scheduler(self) -> Scheduler:
        """Return the steps of the process."""
        diffusion = self.model.diffusion
        return Scheduler(diffusion.noise_scheduler, diffusion.num_inference_steps)

    @property
    def network_image_size(self) -> tuple[int, int] | None:
        """(height, width) to which the network itself scales images."""
        size = self.model.config.resize_shape
        return None if size is None else (int(size[0]), int(size[1]))

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Encode the observation into one vector per row; see `ChunkPolicy.encode`."""
        if condition is not None:
            raise ValueError(f"policy {self.spec.name!r} takes no condition, got {condition!r}")
        batch = with_stacked_images(self.prepare(observation), self.model.config.image_features)
        vector: Tensor = self.model.diffusion._prepare_global_conditioning(batch)  # noqa: SLF001 - it has no other name
        return self.with_origin({"observation": vector}, observation)

    def predict(
        self, native: Float[Tensor, "B H A"], alpha_bar: Float[Tensor, " B"], context: Context
    ) -> Float[Tensor, "B H A"]:
        """Return what the U-Net says; see `VariancePreservingPolicy.predict`."""
        assert isinstance(context, TensorContext)
        time = self.scheduler.timestep_of(alpha_bar)
        said: Tensor = self.model.diffusion.unet(native, time, global_cond=context["observation"])
        return said

    @torch.no_grad()
    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk; see `LeRobotPolicy.original`."""
        self.model.reset()
        with drawing(*step_noise[:-1]):
            chunk: Tensor = self.model.predict_action_chunk(self.prepare(observation), noise=noise)
        return chunk
