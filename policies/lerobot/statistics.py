"""The normalisation statistics inside a LeRobot checkpoint, checked before they are trusted.

LeRobot passes a feature without statistics through unchanged, without a word; the policy then sees numbers of
another size than in training. That is refused here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.checkpoint import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_NEEDED: Mapping[str, tuple[str, str]] = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}


def statistics_of(step: Any) -> dict[str, dict[str, NDArray[Any]]]:  # noqa: ANN401 - a step of LeRobot
    """Return the statistics of a normalising step: feature -> name -> array."""
    return {
        key: {name: np.asarray(value) for name, value in values.items()}
        for key, values in (step.stats or {}).items()
    }


def check_statistics(folder: Path, wanted: Mapping[str, Any], step: Any) -> None:  # noqa: ANN401 - a step
    """Refuse a checkpoint whose configuration and statistics do not belong together.

    Args:
        folder: for messages.
        wanted: key -> PolicyFeature of what the robot must supply, and of "action".
        step: a normalising step of LeRobot.

    Raises:
        CheckpointError: naming every feature that is missing, has another shape, or is not finite.
    """
    statistics = statistics_of(step)
    lines = []
    for key, feature in step.features.items():
        if key in wanted and tuple(wanted[key].shape) != tuple(feature.shape):
            lines.append(
                f"{key!r} has shape {tuple(wanted[key].shape)} in config.json but {tuple(feature.shape)} in "
                "the "
                "normalisation"
            )
        mode = _mode(step, feature)
        if mode != "IDENTITY":
            lines += _differences(key, feature, mode, statistics)
    both = type(step).__name__.startswith("Normalizer")  # the other step has the actions only
    lines += [
        f"{key!r} is in config.json but not in the normalisation, which has {sorted(step.features)}"
        for key in wanted
        if key not in step.features and (both or key == "action")
    ]
    if lines:
        raise CheckpointError(f"{folder} does not fit together: " + "; ".join(lines))


def _mode(step: Any, feature: Any) -> str:  # noqa: ANN401 - objects of LeRobot
    mode = step.norm_map.get(feature.type)
    return "IDENTITY" if mode is None else str(mode.value)


def _differences(
    key: str,
    feature: Any,  # noqa: ANN401 - a feature of LeRobot
    mode: str,
    statistics: Mapping[str, Mapping[str, NDArray[Any]]],
) -> list[str]:
    if key not in statistics:
        return [
            f"there are no statistics for {key!r} (normalised by {mode}), only for {sorted(statistics)}: "
            "LeRobot "
            "would pass it on unnormalised"
        ]
    lines = []
    shape = tuple(feature.shape)
    allowed = [shape, (shape[0], 1, 1), shape[:1]] if len(shape) == 3 else [shape]
    for name in _NEEDED[mode]:
        value = statistics[key].get(name)
        if value is None:
            lines.append(f"the statistics of {key!r} lack {name}, which {mode} needs")
        elif value.shape not in allowed:
            lines.append(f"{key!r} has shape {shape}, but its {name} has {value.shape}")
        elif not np.isfinite(value).all():
            lines.append(f"{name} of {key!r} is not finite: {value.tolist()}")
    return lines or _warn_still(key, mode, statistics[key])


def _warn_still(key: str, mode: str, values: Mapping[str, NDArray[Any]]) -> list[str]:
    low, high = (values[name] for name in _NEEDED[mode])
    spread = high if mode == "MEAN_STD" else high - low
    still = np.flatnonzero(spread.reshape(-1) <= 0).tolist()
    if still:
        logger.warning(
            "%r did not move in training in dimensions %s: LeRobot divides by 1e-8 there, so that the "
            "smallest motion "
            "becomes a huge number.",
            key,
            still,
        )
    return []
