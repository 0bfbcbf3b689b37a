"""robomimic checkpoints as a source of policies; starts without robomimic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.loaders import Loader

if TYPE_CHECKING:
    import torch

    from policies.policy import Policy


def _matches(source: str) -> bool:
    return source.endswith(".pth") and Path(source).is_file()


def _load(source: str, device: torch.device | str, options: dict[str, Any]) -> Policy:
    from policies.device import check_device
    from policies.robomimic import RobomimicPolicy
    from policies.robomimic_checkpoint import read_checkpoint
    from policies.robomimic_spec import RobomimicSettings

    where = check_device(device)
    return RobomimicPolicy(read_checkpoint(source), RobomimicSettings(**options), where)


LOADER = Loader(
    "robomimic",
    "a checkpoint of robomimic, a .pth file",
    _matches,
    _load,
    "policies.robomimic_spec:RobomimicSettings",
)
"""See `policies.loaders`."""
