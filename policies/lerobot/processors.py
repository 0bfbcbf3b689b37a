"""A checkpoint's own pre- and post-processing: observations in, actions to and from normalised space."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.lerobot.files import POSTPROCESSOR, PREPROCESSOR, read_json
from policies.lerobot.statistics import check_statistics, statistics_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_IMAGE_LEVELS = 255.0
_NOT_OBSERVED = ("action", "next.reward", "next.done", "next.truncated", "info", "task")


class Processors:
    """The two pipelines of a checkpoint, taken apart so that actions stay differentiable and on one device.

    LeRobot's post-processor ends on the CPU and its relative actions remember the last observation. Here the
    normalisation of actions is used alone, and the origin of relative actions is handed in.

    Args:
        folder: of the checkpoint.
        config: LeRobot's configuration of the policy.
        features: key -> PolicyFeature of what the robot must supply, and of "action".
        local: name on the hub -> folder used in its place.

    Raises:
        CheckpointError: if a step is unknown, a tokenizer is missing, or statistics do not fit.
    """

    def __init__(
        self,
        folder: Path,
        config: Any,  # noqa: ANN401 - LeRobot ships no types
        features: Mapping[str, Any],
        local: Mapping[str, str],
    ) -> None:
        before, after = _pipelines(folder, config, local)
        steps = require("lerobot.processor", "vla", "A LeRobot checkpoint")
        self._before = before
        before.steps = [step for step in before.steps if not _only_moves(step, steps.DeviceProcessorStep)]
        self.output_steps = [step for step in after.steps if not isinstance(step, steps.DeviceProcessorStep)]
        self.reads_task = any("okeniz" in type(step).__name__ for step in before.steps)
        relative = [
            s for s in before.steps if isinstance(s, steps.RelativeActionsProcessorStep) and s.enabled
        ]
        self._relative = relative[0] if relative else None
        self.renamed = _renamed(before.steps, steps.RenameObservationsProcessorStep)
        types = require("lerobot.lerobot_types", "vla", "A LeRobot checkpoint")
        self._action_key = types.TransitionKey.ACTION
        self.take_scales(folder, features)

    def take_scales(self, folder: Path, features: Mapping[str, Any]) -> None:
        """Find how actions are scaled among the steps, and check it; arguments as of the class."""
        steps = require("lerobot.processor", "vla", "A LeRobot checkpoint")
        self.normalizer = _only(self._before.steps, steps.NormalizerProcessorStep, folder / PREPROCESSOR)
        self.unnormalizer = _only(self.output_steps, steps.UnnormalizerProcessorStep, folder / POSTPROCESSOR)
        for part in (self.normalizer, self.unnormalizer):
            check_statistics(folder, features, part)
        _refuse_two_scales(folder, self.normalizer, self.unnormalizer)

    @property
    def is_relative(self) -> bool:
        """Whether actions are offsets from the newest ``observation.state``."""
        return self._relative is not None

    def observe(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return what the policy's network reads.

        Args:
            observation: as LeRobot's data sets give it, on the device of the network: vectors float32, images
                float32 in [0, 1] with the channels first, "task" as a list.
        """
        batch: dict[str, Any] = self._before(dict(observation))
        return {k: v for k, v in batch.items() if v is not None and k not in _NOT_OBSERVED}

    def normalize(self, action: Tensor, origin: Tensor | None = None) -> Tensor:
        """Return robot-unit actions (B, H, A) in normalised space; differentiable.

        Args:
            action: in robot units.
            origin: (B, S) newest state, for relative actions.
        """
        if self._relative is not None:
            action = action - self._offset(action, origin)
        return self._apply(self.normalizer, action)

    def denormalize(self, action: Tensor, origin: Tensor | None = None) -> Tensor:
        """Return normalised actions (B, H, A) in robot units; differentiable.

        Args:
            action: in normalised space.
            origin: (B, S) newest state, for relative actions.
        """
        action = self._apply(self.unnormalizer, action)
        return action if self._relative is None else action + self._offset(action, origin)

    def tensors(self) -> dict[str, Tensor]:
        """Return all statistics by name, float32, for the policy's hash."""
        parts = {"normalizer": self.normalizer, "unnormalizer": self.unnormalizer}
        return {
            f"{part}.{key}.{name}": torch.as_tensor(value, dtype=torch.float32)
            for part, step in parts.items()
            for key, values in statistics_of(step).items()
            for name, value in values.items()
        }

    def _apply(self, step: Any, action: Tensor) -> Tensor:  # noqa: ANN401 - a step of LeRobot
        changed: Tensor = step({self._action_key: action})[self._action_key]
        return changed

    def _offset(self, action: Tensor, origin: Tensor | None) -> Tensor:
        assert self._relative is not None
        if origin is None:
            raise ValueError("these actions are relative to the state, which the context does not hold")
        width = action.shape[-1]
        moved = torch.tensor(self._relative._build_mask(width), dtype=action.dtype, device=action.device)  # noqa: SLF001 - the only place that knows it
        return (origin[..., :width].to(action) * moved)[:, None]


def lerobot_image(image: Tensor) -> Tensor:
    """Return uint8 images (..., H, W, C) as float32 (..., C, H, W) in [0, 1], as LeRobot reads them."""
    return image.movedim(-1, -3).to(torch.float32) / _IMAGE_LEVELS


def _pipelines(folder: Path, config: Any, local: Mapping[str, str]) -> tuple[Any, Any]:  # noqa: ANN401 - of LeRobot
    """LeRobot's pre- and post-processor of a checkpoint."""
    factory = require("lerobot.policies.factory", "vla", "A LeRobot checkpoint")
    overrides = {
        name: _local_names(read_json(folder / name), local) for name in (PREPROCESSOR, POSTPROCESSOR)
    }
    try:
        before, after = factory.make_pre_post_processors(
            config,
            str(folder),
            preprocessor_overrides=overrides[PREPROCESSOR],
            postprocessor_overrides=overrides[POSTPROCESSOR],
        )
    except (ImportError, ValueError, KeyError, TypeError, OSError, RuntimeError) as error:
        raise CheckpointError(_why_not_built(folder, error)) from error
    return before, after


def _local_names(pipeline: Mapping[str, Any], local: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Overrides that put a folder in place of each name on the hub."""
    found: dict[str, dict[str, Any]] = {}
    for step in pipeline.get("steps", []):
        for name, value in step.get("config", {}).items():
            if isinstance(value, str) and value in local:
                key = step.get("registry_name") or str(step.get("class")).rpartition(".")[2]
                found.setdefault(key, {})[name] = local[value]
    return found


def _why_not_built(folder: Path, error: Exception) -> str:
    names = sorted(
        f"{name} {value!r}"
        for file in (PREPROCESSOR, POSTPROCESSOR)
        for step in read_json(folder / file).get("steps", [])
        for name, value in step.get("config", {}).items()
        if "tokenizer_name" in name or name == "processor_name"
    )
    remedy = ""
    if names:
        remedy = (
            f" They name {', '.join(names)}, from the hub; give local={{NAME: FOLDER}}, or name the folder "
            "under "
            '"local" in robot_rl.json'
        )
    return (
        f"the pre- or post-processor of {folder} cannot be built ({type(error).__name__}: {error}).{remedy}"
    )


def _only_moves(step: Any, kind: type) -> bool:  # noqa: ANN401 - a step of LeRobot
    return isinstance(step, kind) and getattr(step, "float_dtype", None) is None


def _only(steps: list[Any], kind: type, file: Path) -> Any:  # noqa: ANN401 - a step of LeRobot
    found = [step for step in steps if isinstance(step, kind)]
    if len(found) != 1:
        raise CheckpointError(
            f"{file} has {len(found)} steps of kind {kind.__name__}; exactly one is expected"
        )
    return found[0]


def _renamed(steps: list[Any], kind: Any) -> dict[str, str]:  # noqa: ANN401 - a class of LeRobot
    """Robot key -> key of the network, as the pre-processor renames them."""
    return {old: new for step in steps if isinstance(step, kind) for old, new in step.rename_map.items()}


def _refuse_two_scales(folder: Path, normalizer: Any, unnormalizer: Any) -> None:  # noqa: ANN401 - steps
    here, there = statistics_of(normalizer).get("action", {}), statistics_of(unnormalizer).get("action", {})
    for name in here.keys() & there.keys():
        first, second = torch.as_tensor(here[name]), torch.as_tensor(there[name])
        if first.shape != second.shape or not math.isclose(float((first - second).abs().sum()), 0.0):
            raise CheckpointError(
                f"{folder}: the {name} of 'action' is {first.tolist()} in {PREPROCESSOR} but "
                f"{second.tolist()} in "
                f"{POSTPROCESSOR}; an action would not survive the way there and back"
            )
