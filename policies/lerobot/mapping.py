"""What a LeRobot checkpoint does not say, from ``robot_rl.json`` beside it: units, names, limits, rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from data import features as feature_json
from data.features import Feature
from data.hints import did_you_mean
from data.manifest import atomic_write_json
from hardware.action_spec import ActionSpec
from policies.checkpoint import CheckpointError
from policies.lerobot.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

FILE = "robot_rl.json"
_FORMAT = "robot-rl mapping"
_VERSION = 1
_ENTRIES = ("rate_hz", "action_spec", "features", "keys", "local")


@dataclass(frozen=True)
class RobotMapping:
    """How a robot's observations and actions meet a checkpoint's; everything may be left out.

    Attributes:
        rate_hz: control rate that the policy was trained for.
        action_spec: what its action dimensions mean.
        features: robot key -> Feature, which adds unit and names to what the checkpoint says of the shape.
        keys: key of the checkpoint -> robot key, where they differ; one robot key may serve several.
        local: name on the hub that the checkpoint refers to (a tokenizer, an image encoder) -> folder that is
            used in its place; a relative one is below the checkpoint's folder.
    """

    rate_hz: float | None = None
    action_spec: ActionSpec | None = None
    features: Mapping[str, Feature] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    local: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Describe the mapping with JSON types only, as the file has it."""
        entries: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        if self.rate_hz is not None:
            entries["rate_hz"] = self.rate_hz
        if self.action_spec is not None:
            entries["action_spec"] = self.action_spec.to_json()
        if self.features:
            entries["features"] = feature_json.to_json(self.features)
        return entries | {name: dict(value) for name in ("keys", "local") if (value := getattr(self, name))}

    def write(self, folder: Path) -> Path:
        """Write the file into a checkpoint's folder; returns its path."""
        atomic_write_json(folder / FILE, self.to_json())
        return folder / FILE


def read_mapping(folder: Path) -> RobotMapping:
    """Return what ``robot_rl.json`` in a checkpoint's folder says; an empty mapping where there is none.

    Raises:
        CheckpointError: if the file is damaged or says something unknown.
    """
    path = folder / FILE
    if not path.is_file():
        return RobotMapping()
    entries = read_json(path)
    found = (entries.pop("format", None), entries.pop("version", None))
    if found != (_FORMAT, _VERSION):
        raise CheckpointError(f"{path} has format {found}; this program reads {(_FORMAT, _VERSION)}")
    for name in entries:
        if name not in _ENTRIES:
            hint = did_you_mean(name, _ENTRIES, f"allowed are {', '.join(_ENTRIES)}.")
            raise CheckpointError(f"{path} says {name!r}, which is unknown; {hint}")
    try:
        spec = entries.get("action_spec")
        rate = entries.get("rate_hz")
        return RobotMapping(
            rate_hz=None if rate is None else float(rate),
            action_spec=None if spec is None else ActionSpec.from_json(spec),
            features=feature_json.from_json(entries.get("features", {})),
            keys=dict(entries.get("keys", {})),
            local={k: str(folder / v) for k, v in entries.get("local", {}).items()},
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
