"""The options of ``robot-rl train --policy diffusion``; starts without LeRobot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DiffusionSettings:
    """Size and process of LeRobot's Diffusion Policy; names as in its configuration.

    Attributes:
        inputs: feature keys to read, among ``observation.state`` (always), ``observation.environment_state``
            and
            images; empty: those that the data have.
        environment_state: robot key of the vector that LeRobot reads as ``observation.environment_state``;
            empty:
            the one of that name, or, where the data have neither that nor images, the state itself.
        n_obs_steps: newest observations read.
        horizon: actions per chunk, counted from the oldest observation; a multiple of 2 for each of
            `down_dims`.
        n_action_steps: control steps until the next chunk.
        down_dims: channels of the U-Net's levels, multiples of 8.
        kernel_size: of its convolutions.
        diffusion_step_embed_dim: length of the code of the noise level.
        noise_scheduler_type: DDIM is deterministic; DDPM draws noise at every step.
        num_train_timesteps: noise levels in training.
        num_inference_steps: denoising steps.
        prediction_type: whether the U-Net says the noise ("epsilon") or the clean chunk ("sample").
        image_size: (height, width) that images are scaled to.
        vision_backbone: a ResNet of torchvision, trained from random weights.
        spatial_softmax_num_keypoints: points per camera that the image encoder hands on.
    """

    inputs: tuple[str, ...] = ()
    environment_state: str = ""
    n_obs_steps: int = 2
    horizon: int = 16
    n_action_steps: int = 8
    down_dims: tuple[int, ...] = (64, 128)
    kernel_size: int = 5
    diffusion_step_embed_dim: int = 64
    noise_scheduler_type: Literal["DDIM", "DDPM"] = "DDIM"
    num_train_timesteps: int = 100
    num_inference_steps: int = 10
    prediction_type: Literal["epsilon", "sample"] = "epsilon"
    image_size: tuple[int, int] = (96, 96)
    vision_backbone: str = "resnet18"
    spatial_softmax_num_keypoints: int = 32

    def __post_init__(self) -> None:
        multiple = 2 ** len(self.down_dims)
        if self.horizon % multiple:
            raise ValueError(
                f"horizon is {self.horizon}; with {len(self.down_dims)} down_dims it must be a multiple of "
                f"{multiple}"
            )
        if not self.down_dims or any(width < 8 or width % 8 for width in self.down_dims):
            raise ValueError(f"down_dims is {self.down_dims}; give multiples of 8")
        if not 1 <= self.n_action_steps <= self.horizon - self.n_obs_steps + 1:
            raise ValueError(
                f"n_action_steps is {self.n_action_steps}; allowed is 1 to "
                f"{self.horizon - self.n_obs_steps + 1} "
                "(horizon less n_obs_steps plus 1)"
            )
        if not 1 <= self.num_inference_steps <= self.num_train_timesteps:
            raise ValueError(
                f"num_inference_steps is {self.num_inference_steps}; allowed is 1 to num_train_timesteps "
                f"{self.num_train_timesteps}"
            )
