"""The pre- and post-processing of GR00T N1.7, which packs, scales and tokenises in steps of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.lerobot.groot_actions import ActionScale, scale_of
from policies.lerobot.processors import Processors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


class GrootProcessors(Processors):
    """See `Processors`."""

    scale: ActionScale

    def take_scales(self, folder: Path, features: Mapping[str, Any]) -> None:
        """Find the step that decodes actions, check its statistics, and load the tokenizer."""
        module = require("lerobot.policies.groot.processor_groot", "vla", "GR00T")
        if self._relative is not None:
            raise CheckpointError(
                f"{folder} makes relative actions with absolute statistics, which GR00T was not trained for: "
                "train it again without use_relative_actions, or from a base without statistics"
            )
        pack = _only(self._before.steps, module.GrootN17PackInputsStep, folder)
        encode = _only(self._before.steps, module.GrootN17VLMEncodeStep, folder)
        try:
            encode.proc  # noqa: B018 - LeRobot loads it when it is first asked for
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(
                f"the tokenizer of {folder} cannot be loaded ({type(error).__name__}: {error}). It is "
                f"{encode.model_name!r} on the hub; give local={{NAME: FOLDER}}, or name the folder under "
                '"local" in robot_rl.json'
            ) from error
        _check_state(folder, features, pack)
        if len(self.output_steps) != 1:
            raise CheckpointError(
                f"the post-processor of {folder} has {len(self.output_steps)} steps, not one"
            )
        try:
            self.scale = scale_of(self.output_steps[0], pack, int(features["action"].shape[0]))
        except CheckpointError as error:
            raise CheckpointError(f"{folder} cannot be guided: {error}") from error
        self.normalizer = self.unnormalizer = SimpleNamespace(stats=_limits(self.scale, pack))
        self.reads_task = True

    @property
    def is_relative(self) -> bool:
        """Whether actions are offsets from the newest ``observation.state``."""
        return self.scale.is_relative

    def normalize(self, action: Tensor, origin: Tensor | None = None) -> Tensor:
        """Return robot-unit actions in normalised space; see `Processors.normalize`."""
        return self.scale.encode(action, origin)

    def denormalize(self, action: Tensor, origin: Tensor | None = None) -> Tensor:
        """Return normalised actions in robot units; see `Processors.denormalize`."""
        return self.scale.decode(action, origin)


def _only(steps: list[Any], kind: type, folder: Path) -> Any:  # noqa: ANN401 - a step of LeRobot
    found = [step for step in steps if isinstance(step, kind)]
    if len(found) != 1:
        raise CheckpointError(f"the pre-processor of {folder} has {len(found)} steps of kind {kind.__name__}")
    return found[0]


def _check_state(folder: Path, features: Mapping[str, Any], pack: Any) -> None:  # noqa: ANN401 - a step of LeRobot
    """Refuse a checkpoint whose state would be passed on unnormalised, or cut."""
    state = features.get("observation.state")
    values = (pack.stats or {}).get("observation.state", {})
    for name in ("min", "max"):
        found = np.asarray(values[name]).size if name in values else 0
        if state is not None and found != int(state.shape[0]):
            raise CheckpointError(
                f"'observation.state' has {int(state.shape[0])} dimensions in {folder}, its {name} {found}: "
                "LeRobot would fill it up or pass the state on unnormalised"
            )


def _limits(scale: ActionScale, pack: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - a step of LeRobot
    """Statistics as other checkpoints have them, with the widest limits of each action dimension."""
    action = {"min": scale.low.amin(dim=0).numpy(), "max": scale.high.amax(dim=0).numpy()}
    every = {"low": scale.low.numpy(), "high": scale.high.numpy(), "source": scale.source.numpy()}
    return {**(pack.stats or {}), "action": action, "action by position": every}
