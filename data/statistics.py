"""Statistics of features, and the scaling made from them that never divides by next to nothing.

A robot that stood still shows no standard deviation of 0 in a joint but one of 1e-8 to 4e-3, from encoder
noise. Dividing by it turns the first real motion into a number in the thousands. No one threshold finds such
a dimension, since 4e-3 is much for metres and nothing for degrees; `scaling` compares with what it could be.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.features import Feature

logger = logging.getLogger(__name__)

type Mode = Literal["mean_std", "min_max", "quantile"]
_MODES = ("mean_std", "min_max", "quantile")
_CONSTANT = ("refuse", "clamp")

_RESOLUTION: Mapping[str, float] = {"m": 1e-4, "rad": 5e-3, "deg": 0.3, "N": 1e-2, "N m": 1e-3}
"""What a robot's sensors resolve or a standing robot's noise reaches, by unit."""
_SMALLEST = 1e-6
"""Least scale of a dimension about which nothing else is known."""
_NAMED = 8
"""Most dimensions that one message names."""
_SPREAD = 50.0
"""Most scales that one training value may lie from the centre; beyond it rare spikes spoil the scale."""


class NormalizationError(ValueError):
    """A feature cannot be normalised; the message names the feature, the dimension and what to do."""


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Statistics of one feature over all samples, each array of the feature's own shape, float64.

    Attributes:
        mean: Mean.
        std: Standard deviation (of the whole population, not of a sample).
        min: Least value.
        max: Greatest value.
        q01: 1 % quantile.
        q99: 99 % quantile.
        count: Number of samples.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]
    q01: NDArray[np.float64]
    q99: NDArray[np.float64]
    count: int

    def to_json(self) -> dict[str, Any]:
        """The statistics with JSON types only."""
        return {
            field.name: value.tolist()
            if isinstance(value := getattr(self, field.name), np.ndarray)
            else value
            for field in fields(self)
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> FeatureStatistics:
        """Read what `to_json` wrote.

        Raises:
            ValueError: An entry is missing or no number.
        """
        try:
            arrays = {f.name: np.array(mapping[f.name], np.float64) for f in fields(cls) if f.name != "count"}
            return cls(**arrays, count=int(mapping["count"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"Statistics cannot be read, {sorted(mapping)} were given: {error}.") from error


def compute_statistics(
    arrays: Mapping[str, NDArray[Any]], features: Mapping[str, Feature] | None = None
) -> dict[str, FeatureStatistics]:
    """Statistics of every feature over its first axis.

    Args:
        arrays: By key, (N, ...) with N >= 1 samples.
        features: Names the dimensions in messages; may be left out.

    Returns:
        By key.

    Raises:
        NormalizationError: There are no samples, or one of them holds NaN or infinity.
    """
    return {key: _statistics(key, np.asarray(a), (features or {}).get(key)) for key, a in arrays.items()}


def _statistics(key: str, array: NDArray[Any], feature: Feature | None) -> FeatureStatistics:
    if array.ndim == 0 or not len(array):
        raise NormalizationError(f"{key!r} has shape {array.shape}; statistics need at least one sample.")
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        row, *where = np.argwhere(~np.isfinite(values))[0].tolist()
        flat = int(np.ravel_multi_index(where, values.shape[1:])) if where else 0
        name = feature.dimension(flat) if feature else str(where)
        raise NormalizationError(
            f"{key!r} is {values[(row, *where)]} at {name} of sample {row}; repair or drop that sample."
        )
    q01, q99 = np.quantile(values, [0.01, 0.99], axis=0)
    return FeatureStatistics(
        mean=values.mean(0),
        std=values.std(0),
        min=values.min(0),
        max=values.max(0),
        q01=np.asarray(q01),
        q99=np.asarray(q99),
        count=len(values),
    )


@dataclass(frozen=True)
class ScalingRule:
    """How features are brought to about one.

    Attributes:
        mode: ``"mean_std"`` to mean 0 and deviation 1; ``"min_max"`` and ``"quantile"`` (1 % to 99 %) to
            [-1, 1].
        constant: What becomes of a dimension that hardly moved: ``"refuse"`` raises; ``"clamp"`` divides by
            the least sensible scale, bounds the result and logs a warning.
        relative: A scale below this share of the reference (declared range, size of the values, scale of
            the dimensions beside it) counts as hardly moved.
        bound: Greatest normalised magnitude of a clamped dimension.
    """

    mode: Mode = "mean_std"
    constant: Literal["refuse", "clamp"] = "clamp"
    relative: float = 5e-3
    bound: float = 5.0

    def __post_init__(self) -> None:
        """Check every field."""
        for name, value, allowed in (("mode", self.mode, _MODES), ("constant", self.constant, _CONSTANT)):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}.")
        for name, number in (("relative", self.relative), ("bound", self.bound)):
            if not (np.isfinite(number) and number > 0):
                raise ValueError(f"{name} is {number}; a positive number is needed.")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Normalised = (raw - offset) / scale; all arrays have the feature's shape, float64.

    Attributes:
        offset: What becomes 0, in the feature's unit.
        scale: What becomes 1, in the feature's unit; positive.
        bound: Greatest magnitude of a normalised observation; infinite where the dimension moved.
        clamped: Names of the dimensions that hardly moved.
    """

    offset: NDArray[np.float64]
    scale: NDArray[np.float64]
    bound: NDArray[np.float64]
    clamped: tuple[str, ...] = ()


def scaling(
    key: str,
    feature: Feature,
    statistics: Mapping[str, FeatureStatistics],
    rule: ScalingRule | None = None,
    *,
    limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Scaling:
    """Offset and scale of one feature, guarded.

    Args:
        key: Key of the feature.
        feature: What it is; its shape must be that of the statistics.
        statistics: By key.
        rule: How to scale; the defaults of `ScalingRule` when left out.
        limits: Least and greatest value each dimension can take, where they are known (the limits of an
            `ActionSpec`); else the sizes of the values, of their neighbours and the unit decide.

    Returns:
        The scaling.

    Raises:
        NormalizationError: The statistics are missing, not finite, contradict themselves, have another
            shape, or a dimension hardly moved and the rule refuses that.
    """
    rule = rule or ScalingRule()
    stats = _checked(key, feature, statistics)
    offset, scale = _centre_and_scale(stats, rule.mode)
    floor = _floor(feature, stats, scale, rule.relative, limits)
    still = scale < floor
    spiky = np.maximum(stats.max - offset, offset - stats.min) / _SPREAD
    names = tuple(feature.dimension(int(i)) for i in np.flatnonzero(still))
    if names:
        _report(key, names, scale[still], floor[still], rule)
    return Scaling(
        offset=offset,
        scale=np.maximum(np.maximum(scale, floor), spiky),
        bound=np.where(still, rule.bound, np.inf),
        clamped=names,
    )


def _checked(key: str, feature: Feature, statistics: Mapping[str, FeatureStatistics]) -> FeatureStatistics:
    if key not in statistics:
        raise NormalizationError(
            f"There are no statistics for {key!r}, only for {sorted(statistics)}; "
            "compute them on the training data."
        )
    stats = statistics[key]
    for field in fields(stats):
        value = getattr(stats, field.name)
        if field.name == "count":
            continue
        if value.shape != feature.shape:
            raise NormalizationError(
                f"{key!r} has shape {feature.shape}, but its {field.name} has {value.shape}: "
                "the statistics are of other data."
            )
        if not np.isfinite(value).all():
            bad = int(np.flatnonzero(~np.isfinite(value))[0])
            raise NormalizationError(
                f"{field.name} of {key!r} is {value.flat[bad]} at {feature.dimension(bad)}; "
                "compute the statistics anew."
            )
    wrong = (stats.std < 0) | (stats.max < stats.min) | (stats.q99 < stats.q01)
    if wrong.any():
        name = feature.dimension(int(np.flatnonzero(wrong)[0]))
        raise NormalizationError(f"Statistics of {key!r} contradict themselves at {name}; compute them anew.")
    return stats


def _centre_and_scale(
    stats: FeatureStatistics, mode: Mode
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if mode == "mean_std":
        return stats.mean, stats.std
    low, high = (stats.min, stats.max) if mode == "min_max" else (stats.q01, stats.q99)
    return (low + high) / 2, (high - low) / 2


def _floor(
    feature: Feature,
    stats: FeatureStatistics,
    scale: NDArray[np.float64],
    relative: float,
    limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> NDArray[np.float64]:
    if limits is not None:
        return np.asarray(np.maximum(relative * (limits[1] - limits[0]) / 2, _SMALLEST))
    size = np.maximum(np.abs(stats.min), np.abs(stats.max))
    # Where all dimensions share a unit the liveliest one tells what motion is, otherwise the middle one.
    neighbours = scale.max() if _one_quantity(feature) else np.median(scale)
    smallest = _RESOLUTION.get(feature.unit, _SMALLEST)
    return np.asarray(np.maximum(relative * np.maximum(size, neighbours), smallest))


def _one_quantity(feature: Feature) -> bool:
    suffixes = {name.rpartition(".")[2] for name in feature.names if "." in name}
    return bool(feature.unit) or (len(suffixes) == 1 and all("." in name for name in feature.names))


def _report(
    key: str,
    names: tuple[str, ...],
    scale: NDArray[np.float64],
    floor: NDArray[np.float64],
    rule: ScalingRule,
) -> None:
    pairs = [f"{n} ({s:.2g} < {f:.2g})" for n, s, f in zip(names, scale, floor, strict=True)]
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    shown = ", ".join(pairs[:_NAMED]) + more
    if rule.constant == "refuse":
        raise NormalizationError(
            f"{key!r} hardly moved in the training data: {shown}. Record data in which it moves, "
            "drop the dimension, or allow constant='clamp'."
        )
    logger.warning("%r hardly moved in the training data, its scale is clamped: %s.", key, shown)
