"""Which of LeRobot's policies have an adapter here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.hints import did_you_mean
from data.imports import import_object
from policies.checkpoint import CheckpointError

if TYPE_CHECKING:
    from policies.lerobot.base import LeRobotPolicy

FAMILIES: dict[str, str] = {
    "act": "policies.lerobot.act:ActPolicy",
    "diffusion": "policies.lerobot.diffusion:DiffusionPolicy",
    "groot": "policies.lerobot.groot:GrootPolicy",
    "multi_task_dit": "policies.lerobot.multi_task_dit:multi_task_dit",
    "pi0": "policies.lerobot.pi0:Pi0Policy",
    "pi05": "policies.lerobot.pi05:Pi05Policy",
    "smolvla": "policies.lerobot.smolvla:SmolVlaPolicy",
}
"""Type in config.json -> ``module:Class`` of the adapter, or function of the configuration choosing it."""


def family_of(kind: str, config: object) -> type[LeRobotPolicy]:
    """Return the adapter of a type of policy.

    Args:
        kind: as config.json says it.
        config: LeRobot's configuration, for types that come in several kinds.

    Raises:
        CheckpointError: if there is none.
    """
    if kind not in FAMILIES:
        hint = did_you_mean(kind, FAMILIES, f"there are adapters for {', '.join(sorted(FAMILIES))}.")
        raise CheckpointError(f"LeRobot's policy type {kind!r} has no adapter here; {hint}")
    found = import_object(FAMILIES[kind])
    chosen: type[LeRobotPolicy] = found if isinstance(found, type) else found(config)
    return chosen
