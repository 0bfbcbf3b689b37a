"""The base that a refined policy refers to: found, checked, and named anew when the folder moves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.lerobot.mapping import read_mapping
from policies.loading import load

if TYPE_CHECKING:
    from lerobot_policy_robot_rl.configuration_robot_rl import RobotRlConfig
    from policies.policy import Policy


def place_of(config: RobotRlConfig, folder: Path) -> str:
    """Where the base is: below or beside the folder, else as it is written.

    Args:
        config: names the base.
        folder: of the refined policy.
    """
    beside = folder / config.base
    return str(beside.resolve()) if config.base and beside.exists() else config.base


def load_base(config: RobotRlConfig, folder: Path) -> Policy:
    """Return the base, frozen; refuse another one than the refiner was made for.

    Args:
        config: names the base, its hash and the device.
        folder: of the refined policy; its ``robot_rl.json`` says what the base does not say itself.

    Raises:
        CheckpointError: there is no such base, or it cannot be read.
        ValueError: the base is not the one that was exported.
    """
    if not config.base:
        raise ValueError("The configuration names no base; write the folder with `robot-rl export`.")
    mapping = read_mapping(folder)
    options: dict[str, Any] = {
        "default_features": dict(mapping.features),
        "default_action_spec": mapping.action_spec,
        "revision": config.base_revision,
    }
    source = place_of(config, folder)
    try:
        policy = load(source, config.device or "cpu", **options)
    except ValueError as error:
        raise ValueError(
            f"{error}. Another place of the base can be given with --policy.base=PATH."
        ) from error
    if (found := policy.hash()) != config.base_hash:
        raise ValueError(
            f"The base at {source} has changed: its hash is {found[:12]}, but {config.base_hash[:12]} was "
            "exported. Restore it, give its place with --policy.base=PATH, or refine and export anew."
        )
    return policy


def reference_from(place: str, folder: Path) -> str:
    """How a folder refers to a base: relative where both lie on this machine, else as it is.

    Args:
        place: path, hub id or address.
        folder: that will refer to it.
    """
    return os.path.relpath(place, folder.resolve()) if Path(place).exists() else place
