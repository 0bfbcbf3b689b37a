"""Behaviour cloning of LeRobot's Diffusion Policy (Chi et al. 2023), saved as a LeRobot checkpoint.

Deviations from LeRobot's own training: our loop (AdamW, warm-up and cosine, an average of the weights), no
random crops, no pretrained image encoder, and no loss beyond a demonstration's end.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from data.features import Feature
from data.statistics import ScalingRule, compute_statistics, scaling
from policies.lerobot.creating import create, new_config, save_trained, statistics_of_scaling
from policies.lerobot.files import TRAINED, is_checkpoint
from policies.lerobot.mapping import RobotMapping
from policies.lerobot.opening import open_checkpoint
from robot_rl.train.kinds import WindowShape

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from policies.lerobot.base import LeRobotChunkPolicy
    from policies.request import ActionBatch
    from robot_rl.train.demonstrations import Demonstrations
    from robot_rl.train.diffusion_settings import DiffusionSettings
    from robot_rl.train.windows import TensorWindows

STATE, ENVIRONMENT = "observation.state", "observation.environment_state"
_PICTURES = 512
"""Pictures from which an image's mean and standard deviation are taken."""


class DiffusionCloning:
    """Trains LeRobot's Diffusion Policy; see `robot_rl.train.kinds.Cloning`.

    Args:
        settings: what it reads and how large it is.
        constant: what becomes of dimensions that hardly move in the data.
        start: checkpoint to go on from, with its shape and normalisation; its own settings hold.
        seed: of the weights.
        scratch: folder for the checkpoint with random weights that training starts from.

    Raises:
        TypeError: if `start` is another kind of policy.
        ImportError: if LeRobot is not installed.
    """

    def __init__(
        self,
        settings: DiffusionSettings,
        *,
        constant: Literal["clamp", "refuse"],
        start: Path | None,
        seed: int,
        scratch: Path,
    ) -> None:
        self._settings, self._seed = settings, seed
        self._constant: Literal["clamp", "refuse"] = constant
        self._origin = scratch
        self._start: LeRobotChunkPolicy | None = None
        if start is not None:
            self._origin = start if is_checkpoint(start) else start / TRAINED
            opened: Any = open_checkpoint(str(self._origin))
            if opened.spec.name != "diffusion":
                raise TypeError(f"start is {start}, a policy of kind {opened.spec.name}, not diffusion")
            self._start = opened

    @property
    def shape(self) -> WindowShape:
        """What it learns from."""
        own = self._settings
        if self._start is None:
            return WindowShape(own.inputs, own.image_size, own.n_obs_steps, own.horizon, own.n_obs_steps - 1)
        spec = self._start.spec
        size = self._start.network_image_size or own.image_size
        return WindowShape(
            tuple(spec.features), size, spec.observation_steps, spec.horizon, spec.first_action
        )

    def build(self, demos: Demonstrations, windows: TensorWindows) -> LeRobotChunkPolicy:
        """Return the policy to train, from `start` or with random weights."""
        if self._start is None:
            used = _readable(demos, self._settings)
            names = [f.name for f in fields(self._settings) if f.name not in {"inputs", "image_size"}]
            options = {name: getattr(self._settings, name) for name in names}
            if any(feature.is_image for feature in used.values()):
                options |= {"resize_shape": self._settings.image_size, "use_group_norm": True}
            config = new_config("diffusion", used, demos.action_spec.size, **options)
            found = {
                key: _of_images(key, windows) if feature.is_image else self._guarded(key, feature, windows)
                for key, feature in used.items()
            }
            spec = demos.action_spec
            action = Feature((spec.size,), "float32", names=spec.names)
            found["action"] = self._guarded("action", action, windows, limits=(spec.low, spec.high))
            mapping = RobotMapping(rate_hz=spec.rate_hz, action_spec=spec, features=used)
            create(self._origin, config, found, mapping, seed=self._seed)
        return self._opened()

    def copy(self, model: LeRobotChunkPolicy) -> LeRobotChunkPolicy:
        """Return a second policy with the same weights."""
        other = self._opened()
        other.load_state_dict(model.state_dict())
        return other.to(model.device)

    def policy(self, model: LeRobotChunkPolicy) -> LeRobotChunkPolicy:
        """Return the model, which is the policy."""
        return model

    def loss(self, model: LeRobotChunkPolicy, batch: ActionBatch, generator: torch.Generator) -> Tensor:
        """Return the mean denoising loss (Ho et al. 2020, eq. 14, or the same of the clean chunk)."""
        rows = len(batch.action)
        noise = torch.randn(batch.action.shape, generator=generator)
        levels = model.model.config.num_train_timesteps
        time = torch.randint(levels, (rows,), generator=generator)
        policy: Any = model
        loss: Tensor = policy.denoising_loss(batch, noise.to(model.device), time.to(model.device)).mean()
        return loss

    def save(self, model: LeRobotChunkPolicy, run: Path) -> None:
        """Write the policy below the run's folder as a LeRobot checkpoint."""
        save_trained(model, self._origin, run)

    def _opened(self) -> LeRobotChunkPolicy:
        policy: Any = open_checkpoint(str(self._origin))
        return policy.requires_grad_(requires_grad=True)  # type: ignore[no-any-return] # a diffusion policy

    def _guarded(
        self,
        key: str,
        feature: Feature,
        windows: TensorWindows,
        limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        rule = ScalingRule(mode="min_max", constant=self._constant)
        found = compute_statistics({key: windows.used(key)}, {key: feature})
        return statistics_of_scaling(scaling(key, feature, found, rule, limits=limits))


def _readable(demos: Demonstrations, settings: DiffusionSettings) -> dict[str, Feature]:
    """The inputs that LeRobot's network reads; what it would leave out silently is refused if asked for."""
    own = {k: f for k, f in demos.features.items() if k in {STATE, ENVIRONMENT} or f.is_image}
    silent = [key for key in settings.inputs if key not in own]
    if silent:
        raise ValueError(
            f"LeRobot's Diffusion Policy does not read {', '.join(silent)}: only {STATE}, {ENVIRONMENT} and "
            "images"
        )
    if STATE not in own or len(own) < 2:
        raise ValueError(
            f"LeRobot's Diffusion Policy needs {STATE} and besides it {ENVIRONMENT} or an image; "
            f"{demos.source} has "
            f"{', '.join(sorted(demos.features))}. Train --policy flow, which reads any of them"
        )
    return own


def _of_images(key: str, windows: TensorWindows) -> dict[str, NDArray[np.float32]]:
    """Mean and standard deviation of each channel, of levels from 0 to 1."""
    rows = windows.observations[key]
    chosen = torch.linspace(0, len(rows) - 1, min(len(rows), _PICTURES)).long()
    levels = rows[chosen].double() / 255
    mean, spread = levels.mean(dim=(0, 1, 2)), levels.std(dim=(0, 1, 2)).clamp(min=1 / 255)
    values = {"mean": mean, "std": spread, "min": torch.zeros_like(mean), "max": torch.ones_like(mean)}
    return {name: value.numpy().astype(np.float32).reshape(-1, 1, 1) for name, value in values.items()}
