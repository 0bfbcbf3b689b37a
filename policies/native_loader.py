"""Policies that `policies.checkpoint.save` wrote, as a source of policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.loaders import Loader

if TYPE_CHECKING:
    import torch

    from policies.policy import Policy


def _matches(source: str) -> bool:
    return (Path(source) / "policy.json").is_file()


def _load(source: str, device: torch.device | str, options: dict[str, Any]) -> Policy:
    from policies.checkpoint import load

    del options
    return load(source, device)


LOADER = Loader(
    "native", "a folder of robot-rl train or policies.checkpoint.save, with policy.json", _matches, _load
)
"""See `policies.loaders`."""
