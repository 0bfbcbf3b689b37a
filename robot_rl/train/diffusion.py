"""Behaviour cloning of LeRobot's Diffusion Policy (Chi et al. 2023), saved as a LeRobot checkpoint.

Deviations from LeRobot's own training: our loop (AdamW, warm-up and cosine, an average of the weights), no
random crops, no pretrained image encoder, and no loss beyond a demonstration's end.
"""

from __future__ import annotations

import logging
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

logger = logging.getLogger(__name__)

STATE, ENVIRONMENT = "observation.state", "observation.environment_state"
_OURS = {"inputs", "image_size", "environment_state"}
"""Settings that are not LeRobot's."""
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
            more = (own.environment_state,) if own.environment_state else ()
            inputs = tuple(dict.fromkeys((*own.inputs, *more))) if own.inputs else ()
            return WindowShape(inputs, own.image_size, own.n_obs_steps, own.horizon, own.n_obs_steps - 1)
        spec = self._start.spec
        size = self._start.network_image_size or own.image_size
        return WindowShape(
            tuple(spec.features), size, spec.observation_steps, spec.horizon, spec.first_action
        )

    def build(self, demos: Demonstrations, windows: TensorWindows) -> LeRobotChunkPolicy:
        """Return the policy to train, from `start` or with random weights."""
        if self._start is None:
            keys = _readable(demos, self._settings)
            used = {theirs: demos.features[ours] for theirs, ours in keys.items()}
            names = [f.name for f in fields(self._settings) if f.name not in _OURS]
            options = {name: getattr(self._settings, name) for name in names}
            if any(feature.is_image for feature in used.values()):
                options |= {"resize_shape": self._settings.image_size, "use_group_norm": True}
            config = new_config("diffusion", used, demos.action_spec.size, **options)
            found = {
                theirs: _of_images(ours, windows)
                if demos.features[ours].is_image
                else self._guarded(ours, demos.features[ours], windows)
                for theirs, ours in keys.items()
            }
            spec = demos.action_spec
            action = Feature((spec.size,), "float32", names=spec.names)
            found["action"] = self._guarded("action", action, windows, limits=(spec.low, spec.high))
            mapping = RobotMapping(
                rate_hz=spec.rate_hz,
                action_spec=spec,
                features={ours: demos.features[ours] for ours in keys.values()},
                keys={theirs: ours for theirs, ours in keys.items() if theirs != ours},
            )
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


def _readable(demos: Demonstrations, settings: DiffusionSettings) -> dict[str, str]:
    """Key that LeRobot's network reads -> robot key; what it would leave out silently is refused."""
    own = {
        key: key for key, feature in demos.features.items() if key in {STATE, ENVIRONMENT} or feature.is_image
    }
    if settings.environment_state:
        if settings.environment_state not in demos.features:
            raise ValueError(
                f"environment_state is {settings.environment_state!r}; {demos.source} has "
                f"{sorted(demos.features)}"
            )
        own[ENVIRONMENT] = settings.environment_state
    unread = [key for key in settings.inputs if key not in own.values()]
    if unread:
        raise ValueError(
            f"LeRobot's Diffusion Policy does not read {', '.join(unread)}: only {STATE}, images and one "
            "vector as "
            f"{ENVIRONMENT} (environment_state names it)"
        )
    if STATE not in own:
        raise ValueError(
            f"LeRobot's Diffusion Policy needs {STATE}; {demos.source} has {sorted(demos.features)}"
        )
    if len(own) == 1:  # LeRobot refuses a policy of the state alone
        logger.info("%s is read as %s too: LeRobot asks for one or an image", STATE, ENVIRONMENT)
        own[ENVIRONMENT] = STATE
    return own


def _of_images(key: str, windows: TensorWindows) -> dict[str, NDArray[np.float32]]:
    """Mean and standard deviation of each channel, of levels from 0 to 1."""
    rows = windows.observations[key]
    chosen = torch.linspace(0, len(rows) - 1, min(len(rows), _PICTURES)).long()
    levels = rows[chosen].double() / 255
    mean, spread = levels.mean(dim=(0, 1, 2)), levels.std(dim=(0, 1, 2)).clamp(min=1 / 255)
    values = {"mean": mean, "std": spread, "min": torch.zeros_like(mean), "max": torch.ones_like(mean)}
    return {name: value.numpy().astype(np.float32).reshape(-1, 1, 1) for name, value in values.items()}
