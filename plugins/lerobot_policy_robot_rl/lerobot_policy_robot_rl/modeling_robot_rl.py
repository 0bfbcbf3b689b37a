"""A refined policy as LeRobot runs policies: one action per call, or one chunk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor, nn

from lerobot_policy_robot_rl.base import load_base, place_of, reference_from
from lerobot_policy_robot_rl.configuration_robot_rl import RobotRlConfig, not_trainable
from lerobot_policy_robot_rl.leftover import as_previous
from policies.lerobot.from_lerobot import robot_observation
from policies.lerobot.mapping import RobotMapping
from robot_rl.guide.real_time import RealTimeChunking
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.stepper import Stepper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from policies.policy import Policy, PolicySpec

_KINDS = {"observation.state": "STATE", "observation.environment_state": "ENV"}


class RobotRlPolicy(PreTrainedPolicy):  # type: ignore[misc] # LeRobot ships no types
    """A frozen base and its refiner.

    LeRobot's loops run policies under ``torch.inference_mode``, where no gradient can be taken; each call
    here leaves it and works on copies, so that guidance by gradients works in them too.

    Args:
        config: see `RobotRlConfig`; the shapes are filled in from the base.
        base: the frozen policy.
        refiner: what is added; None for the bare base.
        place: where the base was found, for saving.
    """

    config_class = RobotRlConfig
    name = "robot_rl"

    def __init__(
        self,
        config: RobotRlConfig,
        base: Policy | None = None,
        refiner: Refiner | None = None,
        place: str = "",
        **_: object,
    ) -> None:
        if base is None:
            raise ValueError(
                "A refined policy needs a base; write a folder with `robot-rl export` and give it with "
                "--policy.path."
            )
        super().__init__(config)
        self.base = base if isinstance(base, nn.Module) else None  # moves with the policy, as modules do
        self._policy, self._place = base, place
        self.refiner = refiner or Refiner()
        self.refiner.check_base(base.hash())
        describe(config, base.spec)
        self._next_seed = config.seed
        self._stepper: Stepper | None = None
        self._running = False

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path: str | Path,
        *,
        config: RobotRlConfig | None = None,
        revision: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - LeRobot's call
    ) -> Self:
        """Read a folder, or a repository of the hub, that `robot-rl export` wrote.

        Args:
            pretrained_name_or_path: folder or hub id.
            config: in place of the folder's ``config.json``.
            revision: of the repository.
            **kwargs: of LeRobot; statistics among them are ignored.

        Raises:
            ValueError: the base is missing or is not the one that was exported, or the refiner is damaged.
        """
        del kwargs
        folder = _folder(str(pretrained_name_or_path), revision)
        settings = config or cast("RobotRlConfig", PreTrainedConfig.from_pretrained(folder))
        base = load_base(settings, folder)
        device = settings.device or "cpu"
        refiner = load_refiner(folder / settings.refiner, device=device) if settings.refiner else None
        policy = cls(settings, base, refiner, place_of(settings, folder))
        policy.eval()
        return policy

    def _save_pretrained(self, save_directory: Path, state_dict: object = None) -> None:
        """Write configuration, mapping and refiner; the base is referred to, not copied."""
        del state_dict
        folder, spec = Path(save_directory), self._policy.spec
        self.config.base = reference_from(self._place or self.config.base, folder)
        if self.config.refiner:
            save_refiner(folder / self.config.refiner, self.refiner)
        RobotMapping(rate_hz=spec.rate_hz, action_spec=spec.action_spec, features=spec.features).write(folder)
        self.config._save_pretrained(folder)  # noqa: SLF001 - as LeRobot's own policies do

    def reset(self) -> None:
        """Begin new episodes at the next call; their seeds follow those of the last."""
        self._running = False

    def select_action(self, batch: Mapping[str, Any], **_: object) -> Tensor:
        """Return the action of this control step.

        Args:
            batch: observations of B rows in the robot's units, as the processors leave them.

        Returns:
            (B, A), robot units, float64 on the CPU.
        """
        with torch.inference_mode(mode=False):
            observation = _arrays(robot_observation(batch, self._policy.spec.features))
            action = self._begun(observation, batch).act(observation)
            return torch.from_numpy(action)

    def predict_action_chunk(
        self,
        batch: Mapping[str, Any],
        *,
        inference_delay: int | None = None,
        prev_chunk_left_over: Tensor | None = None,
        **_: object,
    ) -> Tensor:
        """Return a chunk from the present action on.

        Args:
            batch: as for `select_action`; with an axis of time, (B, steps, ...), for a base that reads
                several observations, as LeRobot's data sets give it.
            inference_delay: control steps that pass until the chunk can act.
            prev_chunk_left_over: what is left of the last chunk, (n, A) or (B, n, A).

        Returns:
            (B, n, A), robot units, float32 on the CPU.

        Raises:
            ValueError: the refiner corrects each control step.
        """
        spec = self._policy.spec
        with torch.inference_mode(mode=False):
            past = _past(batch, spec)
            rows = len(next(iter(past[0].values())))
            chunk = self._begun(past[0], batch).chunk(
                past,
                previous=as_previous(prev_chunk_left_over, spec, rows),
                delay=inference_delay or 0,
            )
            return torch.from_numpy(chunk[:, spec.first_action :].copy())

    def supports_rtc(self) -> bool:
        """Whether LeRobot's real-time loop may run it: it joins chunks, and chunks begin at the present."""
        joins = any(isinstance(hook, RealTimeChunking) for hook in self.refiner.hooks)
        return joins and self._policy.spec.first_action == 0

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: nothing here is trained."""
        del mode
        return super().train(mode=False)  # type: ignore[no-any-return] # LeRobot ships no types

    def get_optim_params(self) -> NoReturn:
        """Refuse to train; see `not_trainable`."""
        raise not_trainable()

    def forward(self, batch: Mapping[str, Tensor]) -> NoReturn:
        """Refuse to train; see `not_trainable`."""
        del batch
        raise not_trainable()

    def _begun(self, observation: Mapping[str, NDArray[Any]], batch: Mapping[str, Any]) -> Stepper:
        rows = len(next(iter(observation.values())))
        if self._stepper is None or (not self._running and self._stepper.rows != rows):
            self._stepper = Stepper(self._policy, self.refiner, rows, gain=self.config.gain)
        if not self._running:
            texts = batch.get("task")
            tasks = [texts] * rows if isinstance(texts, str) else texts
            self._stepper.begin(tasks, range(self._next_seed, self._next_seed + rows))
            self._next_seed += rows
            self._running = True
        return self._stepper


def describe(config: RobotRlConfig, spec: PolicySpec) -> None:
    """Fill in the shapes that LeRobot reads, from the base's spec."""
    config.input_features = {
        key: PolicyFeature(
            FeatureType.VISUAL if feature.is_image else FeatureType(_KINDS.get(key, "STATE")),
            (feature.shape[2], *feature.shape[:2]) if feature.is_image else feature.shape,
        )
        for key, feature in spec.features.items()
    }
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (spec.action_size,))}
    config.chunk_size = spec.horizon - spec.first_action
    config.n_action_steps = spec.executed_steps


def _past(batch: Mapping[str, Any], spec: PolicySpec) -> list[dict[str, NDArray[Any]]]:
    """The latest observations in a batch, oldest first."""
    steps = spec.observation_steps
    if steps == 1:
        return [_arrays(robot_observation(batch, spec.features))]
    seen = robot_observation(batch, spec.features, steps)
    return [_arrays({key: value[:, index] for key, value in seen.items()}) for index in range(steps)]


def _arrays(observation: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {key: np.array(value.numpy(force=True)) for key, value in observation.items()}


def _folder(name: str, revision: str | None) -> Path:
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision))
