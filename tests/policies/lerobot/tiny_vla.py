"""The small random policies with a language model, loaded as a user loads a checkpoint."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from policies.lerobot.opening import open_checkpoint
from policies.lerobot.settings import LeRobotSettings
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.tiny_groot import BACKBONE, save_groot
from tests.policies.lerobot.tiny_pi import TOKENIZER, save_pi, small_sizes
from tests.policies.lerobot.tiny_smolvla import save_smolvla

if TYPE_CHECKING:
    from pathlib import Path

    from policies.lerobot.base import LeRobotChunkPolicy
    from policies.request import Observation

CACHED = ("smolvla", "pi0", "pi05")
KINDS = (*CACHED, "groot")


def save_vla(folder: Path, kind: str, **options: Any) -> Path:
    """Write a checkpoint of a kind; returns its folder.

    Args:
        folder: made if missing.
        kind: one of `KINDS`.
        options: of LeRobot's configuration, on top of the small ones.
    """
    if kind in ("pi0", "pi05"):
        return save_pi(folder, kind, **options)
    return {"smolvla": save_smolvla, "groot": save_groot}[kind](folder, **options)


def open_vla(folder: Path, **settings: Any) -> LeRobotChunkPolicy:
    """Load what `save_vla` wrote.

    Args:
        folder: as `save_vla` returned it.
        settings: of `LeRobotSettings`.
    """
    local = {TOKENIZER: str(folder.parent / "tokenizer"), BACKBONE: str(folder.parent / "backbone")}
    settings = {"local": local, **settings}
    with small_sizes() if "pi" in folder.parent.name else nullcontext():
        return open_checkpoint(str(folder), settings=LeRobotSettings(rate_hz=10.0, **settings))


def make_vla(folder: Path, kind: str, **options: Any) -> LeRobotChunkPolicy:
    """Write and load a checkpoint; see `save_vla`."""
    return open_vla(save_vla(folder / kind, kind, **options))


def observation(rows: int = 2, seed: int = 0, tasks: tuple[str, ...] = ()) -> Observation:
    """Random observations of the small policies' features.

    Args:
        rows: B.
        seed: of states and images.
        tasks: one text per row; left out, all rows have the same.
    """
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = tiny.IMAGE
    image = (rows, 1, height, width, channels)
    return {
        "observation.state": torch.randn(rows, 1, tiny.STATE_SIZE, generator=generator),
        "observation.images.top": torch.randint(0, 256, image, generator=generator, dtype=torch.uint8),
        "task": list(tasks) or ["put the peg in"] * rows,
    }


def noise(policy: LeRobotChunkPolicy, rows: int = 2, seed: int = 1) -> torch.Tensor:
    """Initial noise for a policy, float32."""
    return torch.randn(rows, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(seed))
