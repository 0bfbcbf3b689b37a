"""Brings arrays from one convention to another: picture layout, quaternion order, unit, absolute or delta.

What can be done exactly from the array alone is done here. Changing the form of a rotation is
`hardware.rotations.convert`; between absolute values and deltas something must be known besides the array.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import ROTATION_SIZES, Feature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

_UNITS: Mapping[tuple[str, str], float] = {
    ("deg", "rad"): math.pi / 180.0,
    ("mm", "m"): 1e-3,
    ("cm", "m"): 1e-2,
    ("mN", "N"): 1e-3,
    ("ms", "s"): 1e-3,
    ("g", "kg"): 1e-3,
}
_ORDERS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("quaternion_wxyz", "quaternion_xyzw"): (1, 2, 3, 0),
    ("quaternion_xyzw", "quaternion_wxyz"): (3, 0, 1, 2),
}


class ConventionError(ValueError):
    """One convention cannot be brought to the other; says which and what to do."""


def convert(values: NDArray[Any], source: Feature, target: Feature) -> NDArray[Any]:
    """Bring samples of one description to another one that means the same.

    Layout, quaternion order, unit and number type are changed where both sides state them and differ.

    Args:
        values: (..., *source.shape).
        source: What they are.
        target: What is wanted.

    Returns:
        (..., *target.shape), a new array of the target's type.

    Raises:
        ConventionError: The shapes do not fit, the form of a rotation or the mode differs, a unit has no
            known factor, or the target's type cannot hold the values.
    """
    if values.shape[values.ndim - len(source.shape) :] != source.shape:
        raise ConventionError(f"Samples of shape {source.shape} were announced, not {values.shape}.")
    if source.mode and target.mode and source.mode != target.mode:
        raise ConventionError(f"{source.mode} values are no {target.mode} ones; use to_delta or to_absolute.")
    made = to_layout(values, source.layout or "hwc", target.layout or "hwc") if _picture(source) else values
    if made.shape[made.ndim - len(target.shape) :] != target.shape:
        raise ConventionError(f"Samples have shape {source.shape}; {target.shape} is needed.")
    made = _reordered(made, source, target)
    factor = unit_factor(source.unit, target.unit) if source.unit and target.unit else 1.0
    return _cast(made if factor == 1.0 else made * factor, target.dtype)


def to_layout(pictures: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Pictures (..., H, W, C) as (..., C, H, W) or the other way round.

    Args:
        pictures: At least 3 axes.
        source: ``"hwc"`` or ``"chw"``.
        target: The same.

    Raises:
        ConventionError: A layout is unknown, or there are too few axes.
    """
    if {source, target} - {"hwc", "chw"} or pictures.ndim < 3:
        raise ConventionError(
            f"Pictures of shape {pictures.shape} from {source!r} to {target!r}: layouts are 'hwc' and 'chw', "
            "and a picture has three axes."
        )
    if source == target:
        return pictures
    return np.moveaxis(pictures, -1, -3) if target == "chw" else np.moveaxis(pictures, -3, -1)


def reorder_quaternion(values: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Quaternions (..., 4) from one order to the other.

    Args:
        values: Quaternions.
        source: ``"quaternion_wxyz"`` or ``"quaternion_xyzw"``.
        target: The same.

    Raises:
        ConventionError: A form is no quaternion order, or the last axis is not 4.
    """
    if values.shape[-1:] != (4,):
        raise ConventionError(f"Quaternions have a last axis of 4, not shape {values.shape}.")
    if source == target and ROTATION_SIZES.get(source) == 4:
        return values
    if (source, target) not in _ORDERS:
        raise ConventionError(
            f"{source!r} to {target!r} is no change of order; hardware.rotations.convert changes the form."
        )
    return values[..., list(_ORDERS[source, target])]


def unit_factor(source: str, target: str) -> float:
    """What a number in one unit is multiplied by to be in another.

    Raises:
        ConventionError: No factor is known.
    """
    if source == target:
        return 1.0
    if (source, target) in _UNITS:
        return _UNITS[source, target]
    if (target, source) in _UNITS:
        return 1.0 / _UNITS[target, source]
    raise ConventionError(f"No factor from {source!r} to {target!r}; known are {sorted(_UNITS)}.")


def to_delta(values: ArrayLike, start: ArrayLike) -> NDArray[np.float64]:
    """Changes per step of absolute values without rotations.

    Args:
        values: (T, A), row t being the value after step t.
        start: (A,), the value before the first step.

    Returns:
        (T, A); `to_absolute` with the same start undoes it up to rounding.
    """
    rows = np.asarray(values, np.float64)
    return np.diff(rows, axis=0, prepend=np.asarray(start, np.float64)[None])


def to_absolute(deltas: ArrayLike, start: ArrayLike) -> NDArray[np.float64]:
    """Absolute values (T, A) of changes per step without rotations; see `to_delta`."""
    rows = np.asarray(deltas, np.float64)
    return np.asarray(start, np.float64) + np.cumsum(rows, axis=0)


def _picture(feature: Feature) -> bool:
    return bool(feature.layout) or feature.is_image


def _reordered(values: NDArray[Any], source: Feature, target: Feature) -> NDArray[Any]:
    if not (source.rotations and target.rotations) or source.rotations == target.rotations:
        return values
    if [start for start, _ in source.rotations] != [start for start, _ in target.rotations]:
        raise ConventionError(f"Rotations lie at {source.rotations}, but are wanted at {target.rotations}.")
    made = values.copy()
    for (start, have), (_, want) in zip(source.rotations, target.rotations, strict=True):
        if have != want:
            made[..., start : start + 4] = reorder_quaternion(values[..., start : start + 4], have, want)
    return made


def _cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    kinds = (np.dtype(dtype).kind, values.dtype.kind)
    made = values.astype(dtype)
    # Between floats rounding is expected; whatever else changes a number loses it.
    if kinds != ("f", "f") and not np.array_equal(made, values):
        raise ConventionError(f"{dtype} cannot hold the values of type {values.dtype}.")
    return made
