"""What the small random policies with a language model have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.policies.lerobot.recipes import ACTION, STATE, feature

if TYPE_CHECKING:
    from pathlib import Path

    from lerobot.configs.types import PolicyFeature

STATE_SIZE = 5
ACTION_SIZE = 3
CAMERA = "observation.images.top"
IMAGE = (3, 24, 40)
HORIZON = 8
STEPS = 4
PADDED = 8
"""Width to which states and actions are padded."""


def features(state: int = STATE_SIZE, action: int = ACTION_SIZE) -> dict[str, dict[str, PolicyFeature]]:
    """A state, one camera and an action, as entries of a configuration."""
    return {
        "input_features": {STATE: feature("STATE", state), CAMERA: feature("VISUAL", *IMAGE)},
        "output_features": {ACTION: feature("ACTION", action)},
    }


def change_config(folder: Path, **entries: Any) -> None:
    """Overwrite entries of a checkpoint's config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | entries), encoding="utf-8")
