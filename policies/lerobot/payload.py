"""A LeRobot checkpoint without its weights as JSON types, which a saved policy or a refiner can hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from policies.lerobot.files import CONFIG, read_json
from policies.lerobot.mapping import FILE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policies.lerobot.mapping import RobotMapping

_TEXTS = (CONFIG, "policy_*.json")
_STATISTICS = "policy_*.safetensors"


def read_payload(folder: Path, mapping: RobotMapping) -> dict[str, Any]:
    """Return configuration, processors with their statistics, and the robot's side.

    Args:
        folder: of a checkpoint.
        mapping: what is known of the robot's side, resolved.
    """
    texts = {file.name: read_json(file) for pattern in _TEXTS for file in sorted(folder.glob(pattern))}
    if texts[CONFIG].get("compile_model"):
        texts[CONFIG]["compile_model"] = False  # who loaded it agreed to that
    arrays = {
        file.name: {name: _to_json(value) for name, value in load_file(file).items()}
        for file in sorted(folder.glob(_STATISTICS))
    }
    return {"files": texts | {FILE: mapping.to_json()}, "statistics": arrays}


def write_payload(payload: Mapping[str, Any], folder: Path) -> None:
    """Write what `read_payload` returned into an empty folder; only the weights are missing then.

    Raises:
        KeyError: if the payload is incomplete.
    """
    for name, text in payload["files"].items():
        _inside(folder, name).write_text(json.dumps(text), encoding="utf-8")
    for name, arrays in payload["statistics"].items():
        found = {
            key: np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])
            for key, entry in arrays.items()
        }
        save_file(found, _inside(folder, name))


def _inside(folder: Path, name: str) -> Path:
    if "/" in name or "\\" in name or name.startswith("."):
        raise ValueError(f"a checkpoint holds no file {name!r}")
    return folder / name


def _to_json(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.reshape(-1).tolist()}
