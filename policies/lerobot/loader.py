"""LeRobot checkpoints as a source of policies; starts without LeRobot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.lerobot.files import matches
from policies.loaders import Loader

if TYPE_CHECKING:
    import torch

    from policies.policy import Policy


def _load(source: str, device: torch.device | str, options: dict[str, Any]) -> Policy:
    from policies.lerobot.opening import open_checkpoint
    from policies.lerobot.settings import LeRobotSettings

    return open_checkpoint(source, device, LeRobotSettings(**options))


LOADER = Loader(
    "lerobot",
    "a LeRobot checkpoint: a folder with config.json and model.safetensors, or the id of a hub repository, "
    "user/name",
    matches,
    _load,
    "policies.lerobot.settings:LeRobotSettings",
)
"""See `policies.loaders`."""
