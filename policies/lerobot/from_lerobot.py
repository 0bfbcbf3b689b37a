"""Observations as LeRobot's loops hand them out, back in the robot's units and layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.features import Feature

OBSERVATION = "observation."
_IMAGES = "observation.image"
_LEVELS = 255.0


def robot_image(image: Tensor, key: str = "image") -> Tensor:
    """Return float images (..., C, H, W) in [0, 1] as uint8 (..., H, W, C); the inverse of `lerobot_image`.

    Exact: every one of the 256 levels comes back. Bytes are passed on, their channels last.

    Args:
        image: as LeRobot's loops make it.
        key: for the message.

    Raises:
        ValueError: a value lies outside [0, 1], as after a normalisation.
    """
    if image.dtype != torch.uint8:
        low, high = float(image.min()), float(image.max())
        if not 0.0 <= low <= high <= 1.0:
            raise ValueError(
                f"{key!r} has values from {low:.3g} to {high:.3g}; an image must lie in 0 .. 1. A processor "
                "seems to normalise it before; the policy does that itself, so leave that step out."
            )
        image = (image * _LEVELS).round().to(torch.uint8)
    return image.movedim(-3, -1)


def robot_observation(
    batch: Mapping[str, Any], features: Mapping[str, Feature], steps: int | None = None
) -> dict[str, Tensor]:
    """Return the observations in a batch of LeRobot as a robot gives them, each (B, ...).

    Args:
        batch: as it enters a policy whose processors do nothing; other entries than observations are left.
        features: of the keys that are known; others keep their shape, images by their name.
        steps: None: one observation per row; else the batch has an axis of time of this length, (B, steps,
            ...), which is kept.

    Raises:
        ValueError: a key that is known is missing or has another size.
    """
    if missing := [key for key in features if not isinstance(batch.get(key), Tensor)]:
        held = sorted(key for key in batch if key.startswith(OBSERVATION))
        raise ValueError(f"the observation lacks {missing}; it has {held}. Rename keys with --rename_map.")
    found = {}
    for key, value in batch.items():
        if not (key.startswith(OBSERVATION) and isinstance(value, Tensor)):
            continue
        feature = features.get(key)
        if (feature is not None and feature.is_image) or (feature is None and _is_picture(key, value)):
            value = robot_image(value, key)  # noqa: PLW2901 - the same value in the robot's layout
        found[key] = value if feature is None else _shaped(key, value, feature, steps)
    return found


def _is_picture(key: str, value: Tensor) -> bool:
    return key.startswith(_IMAGES) and value.ndim >= 4


def _shaped(key: str, value: Tensor, feature: Feature, steps: int | None) -> Tensor:
    time = () if steps is None else (steps,)
    size = feature.size * (1 if steps is None else steps)
    # LeRobot makes one row of many scalars, so that the axes of a small observation say nothing.
    if value.numel() % size or (feature.size > 1 and value.numel() // size != value.shape[0]):
        wanted = ", ".join(map(str, (*time, *feature.shape)))
        raise ValueError(f"{key!r} has shape {tuple(value.shape)}; the policy reads (B, {wanted})")
    dtype: torch.dtype = getattr(torch, feature.dtype)
    return value.reshape(-1, *time, *feature.shape).to(dtype)
