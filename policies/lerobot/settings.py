"""What a caller may say when a LeRobot checkpoint is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.features import Feature
from hardware.action_spec import ActionSpec


@dataclass(frozen=True)
class LeRobotSettings:
    """Options of `policies.loading.load` for a LeRobot checkpoint; they win over ``robot_rl.json``.

    The two defaults do not: they hold where neither the checkpoint nor that file says anything.

    Attributes:
        revision: branch, tag or commit on the hub.
        rate_hz: control rate that the policy was trained for.
        keys: key of the checkpoint -> robot key, where they differ; one robot key may serve several.
        local: name on the hub that the checkpoint refers to -> folder used in its place.
        data: recordings that the policy was trained on, in any format that `data.formats` reads: their rate
            is
            taken, and their keys and shapes are compared with the checkpoint's.
        compile_model: False loads a checkpoint uncompiled that asks for torch.compile; None refuses it.
        default_features: units and names of observations, taken where ``robot_rl.json`` says nothing of them.
        default_action_spec: the same for actions and rate.
    """

    revision: str | None = None
    rate_hz: float | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    local: Mapping[str, str] = field(default_factory=dict)
    data: Path | None = None
    compile_model: bool | None = None
    default_features: Mapping[str, Feature] = field(default_factory=dict)
    default_action_spec: ActionSpec | None = None

    def __post_init__(self) -> None:
        if self.rate_hz is not None and not self.rate_hz > 0:
            raise ValueError(f"rate_hz is {self.rate_hz}; the control rate in Hz must be positive")
        if self.compile_model:
            raise ValueError("compile_model may be False (load uncompiled) or left out, not True")
