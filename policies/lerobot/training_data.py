"""Whether a checkpoint and the recordings it is said to come from have the same keys and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.features import Feature
from data.formats.registry import open_source
from data.lerobot import LeRobotFolder
from hardware.action_spec import ActionSpec
from policies.checkpoint import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTION = "action"


def compare_with_data(folder: Path, features: Mapping[str, Any], data: Path | str) -> float | None:
    """Return the control rate of the recordings, Hz; None where they do not say it.

    Args:
        folder: of the checkpoint.
        features: robot key -> PolicyFeature of LeRobot, "action" among them.
        data: the recordings, in any format that is read.

    Raises:
        CheckpointError: naming every key and shape that differs.
    """
    found, rate = _facts(Path(data))
    lines = [line for key, feature in features.items() for line in _differs(key, feature, found)]
    if lines:
        raise CheckpointError(f"{folder} was not trained on {data}: " + "; ".join(lines))
    return rate


def _facts(data: Path) -> tuple[dict[str, Feature], float | None]:
    """Features of the recordings, the action among them where they describe it, and their rate."""
    if (data / "meta" / "info.json").is_file():
        recordings = LeRobotFolder(data)
        return dict(recordings.features), recordings.fps
    source = open_source(data)
    if source.action_spec is None:
        return dict(source.features), None
    spec = ActionSpec.from_json(source.action_spec)
    return {**source.features, ACTION: Feature((spec.size,), "float32")}, spec.rate_hz


def _differs(key: str, feature: Any, found: Mapping[str, Feature]) -> list[str]:  # noqa: ANN401 - of LeRobot
    if key not in found:
        if key == ACTION:  # the recordings do not describe it
            return []
        return [f"{key!r} is in the checkpoint but not in the data, which have {sorted(found)}"]
    shape = tuple(feature.shape)
    if str(feature.type.value) == "VISUAL":
        shape = (*shape[1:], shape[0])
    other = found[key].shape
    if shape != other:
        return [f"{key!r} has shape {shape} in the checkpoint but {other} in the data"]
    return []
