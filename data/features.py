"""What one entry of an observation or action is: shape, type, unit, names, conventions of its numbers.

`data.conventions` brings arrays from one convention to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.hints import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KINDS = "biuf"  # booleans, signed and unsigned integers, floats: never objects
ROTATION_SIZES: Mapping[str, int] = {
    "rotvec": 3,
    "quaternion_wxyz": 4,
    "quaternion_xyzw": 4,
    "rotation_6d": 6,
}
"""Forms of a rotation and how many numbers each takes; defined in `hardware.rotations`."""
_CHOICES: Mapping[str, tuple[str, ...]] = {"layout": ("", "hwc", "chw"), "mode": ("", "absolute", "delta")}
_LATER = ("layout", "rotations", "mode")  # fields that older files do not have


@dataclass(frozen=True)
class Feature:
    """One named array that a robot, a simulation or a policy speaks.

    Attributes:
        shape: Size of each axis of one sample, without batch or time. Images are (height, width, channels).
        dtype: NumPy type name, such as ``"float32"`` or ``"uint8"``.
        unit: SI unit of every element, such as ``"m"`` or ``"N"``; empty when there is none or they differ.
        names: For a vector one name per element, otherwise one per axis; may be empty.
        description: One sentence for people.
        layout: Axes of a picture: ``"hwc"`` (height, width, channels), which is also meant when it is empty,
            or ``"chw"``.
        rotations: (index of the first element, form) of each rotation within a vector, such as
            ``((3, "quaternion_xyzw"),)`` for a pose; forms as in `ROTATION_SIZES`.
        mode: ``"absolute"`` or ``"delta"`` (to the value one step before); empty when not said.
    """

    shape: tuple[int, ...]
    dtype: str
    unit: str = ""
    names: tuple[str, ...] = ()
    description: str = ""
    layout: str = ""
    rotations: tuple[tuple[int, str], ...] = ()
    mode: str = ""

    def __post_init__(self) -> None:
        """Check the shape, the type and the names; lists (as JSON gives them) become tuples."""
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        if any(size < 1 for size in self.shape):
            raise ValueError(f"Feature shape {self.shape} must hold positive sizes; () is a scalar.")
        try:
            known = np.dtype(self.dtype).kind in _KINDS
        except TypeError:
            known = False
        if not known:
            raise ValueError(
                f"Feature dtype {self.dtype!r} is not a plain number; use a NumPy name such as 'float32', "
                "'uint8', 'int64' or 'bool'."
            )
        wanted = self.shape[0] if len(self.shape) == 1 else len(self.shape)
        if self.names and len(self.names) != wanted:
            raise ValueError(
                f"Feature has {len(self.names)} names {self.names} for shape {self.shape}; give {wanted} "
                "(one per element of a vector, one per axis otherwise) or none."
            )
        self._check_conventions()

    @property
    def size(self) -> int:
        """Number of elements of one sample."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_image(self) -> bool:
        """Whether this is a (height, width, channels) picture of 8-bit values."""
        return len(self.shape) == 3 and self.dtype == "uint8" and self.layout != "chw"

    def dimension(self, index: int) -> str:
        """Name of the element at a flat index, for messages; ``[row, column]`` where it has no name.

        Args:
            index: Position in the flattened sample, 0 <= index < size.

        Raises:
            IndexError: The feature has no such element.
        """
        if not 0 <= index < self.size:
            raise IndexError(f"Dimension {index} of a feature with {self.size} elements.")
        if len(self.shape) == 1 and self.names:
            return self.names[index]
        return str([int(i) for i in np.unravel_index(index, self.shape)]) if self.shape else "scalar"

    def _check_conventions(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"Feature {name} is {getattr(self, name)!r}; allowed: {allowed}.")
        if self.layout and len(self.shape) != 3:
            raise ValueError(
                f"Feature of shape {self.shape} has layout {self.layout!r}; a picture has 3 axes."
            )
        rotations = tuple(sorted((int(start), str(form)) for start, form in self.rotations))
        object.__setattr__(self, "rotations", rotations)
        end = 0
        for start, form in rotations:
            if form not in ROTATION_SIZES:
                raise ValueError(f"Rotation form {form!r} is unknown; allowed: {', '.join(ROTATION_SIZES)}.")
            if len(self.shape) != 1 or not end <= start <= self.shape[0] - ROTATION_SIZES[form]:
                raise ValueError(
                    f"Rotations {rotations} do not fit a feature of shape {self.shape}: each needs its own "
                    f"{ROTATION_SIZES[form]} elements ({form}) of one vector."
                )
            end = start + ROTATION_SIZES[form]


type Features = Mapping[str, Feature]
"""Feature of each key, such as ``observation.state``."""


def to_json(features: Features) -> dict[str, dict[str, Any]]:
    """Describe features with JSON types only; the inverse of `from_json`.

    Conventions that are not said are left out, so that what says none reads as it always did.
    """
    return {
        key: {
            "shape": list(f.shape),
            "dtype": f.dtype,
            "unit": f.unit,
            "names": list(f.names),
            "description": f.description,
        }
        | {name: _lists(value) for name in _LATER if (value := getattr(f, name))}
        for key, f in features.items()
    }


def _lists(value: Any) -> Any:  # noqa: ANN401 - text, or rotations
    return [list(entry) for entry in value] if isinstance(value, tuple) else value


def from_json(mapping: Mapping[str, Mapping[str, Any]]) -> dict[str, Feature]:
    """Read what `to_json` wrote.

    Raises:
        ValueError: An entry lacks shape or dtype, or holds something that is no feature.
    """
    features = {}
    for key, entry in mapping.items():
        try:
            features[key] = Feature(**{**entry, "shape": tuple(entry["shape"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"Feature {key!r} cannot be read from {dict(entry)!r}: {error}.") from error
    return features


def from_array(array: NDArray[Any], *, unit: str = "", names: tuple[str, ...] = ()) -> Feature:
    """Feature of one sample of an array that carries no description of its own."""
    return Feature(tuple(array.shape), str(array.dtype), unit, names)


def differences(
    expected: Features, found: Features, *, expected_by: str = "expected", found_in: str = "found"
) -> list[str]:
    """Say in words how two sets of features differ.

    Descriptions are not compared, and names, units and conventions only where both sides state them.

    Args:
        expected: What is needed.
        found: What there is.
        expected_by: Who needs it, for the message, such as ``"the checkpoint"``.
        found_in: Where it was looked for, such as ``"the environment"``.

    Returns:
        One sentence per difference; empty when everything that is expected is there.
    """
    lines = []
    for key, want in expected.items():
        if key not in found:
            hint = did_you_mean(key, found, f"it has {sorted(found)}.")
            lines.append(f"{key!r} is needed by {expected_by} but missing in {found_in}; {hint}")
            continue
        lines += [f"{key!r}: {line}" for line in _one_difference(want, found[key], expected_by, found_in)]
    return lines


def _one_difference(want: Feature, have: Feature, expected_by: str, found_in: str) -> list[str]:
    pairs: list[tuple[str, Any, Any]] = [("shape", want.shape, have.shape), ("dtype", want.dtype, have.dtype)]
    stated = [(name, getattr(want, name), getattr(have, name)) for name in ("unit", "names", *_LATER)]
    pairs += [(name, a, b) for name, a, b in stated if a and b]
    return [f"{what} is {b} in {found_in} but {a} in {expected_by}." for what, a, b in pairs if a != b]


def check_sample(sample: Mapping[str, Any], features: Features, *, source: str = "the observation") -> None:
    """Refuse a sample that lacks a feature or holds it in another shape or with other than finite numbers.

    Args:
        sample: Arrays by key; keys beyond the features are ignored.
        features: What has to be there.
        source: Whose sample it is, for the message.

    Raises:
        ValueError: A sensor is missing, has another shape, or holds NaN or infinity; names the dimension.
    """
    for key, feature in features.items():
        if key not in sample:
            raise ValueError(
                f"{key!r} is missing from {source}, which holds {sorted(sample)}. A missing sensor is never "
                "replaced by zeros: connect it or remove the feature."
            )
        value = np.asarray(sample[key])
        if value.shape != feature.shape:
            raise ValueError(f"{key!r} in {source} has shape {value.shape}; {feature.shape} was declared.")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            bad = int(np.flatnonzero(~np.isfinite(value))[0])
            raise ValueError(f"{key!r} in {source} is {value.flat[bad]} at {feature.dimension(bad)}.")
