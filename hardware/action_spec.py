"""What the numbers of an action mean: groups with mode, frame, rotation form, units and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

type Mode = Literal["absolute", "delta"]
type Kind = Literal["position", "pose", "joint", "gripper"]
type Rotation = Literal["none", "rotvec", "quaternion_wxyz", "quaternion_xyzw", "rotation_6d"]

_ROTATION_NAMES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "rotvec": ("rx", "ry", "rz"),
    "quaternion_wxyz": ("qw", "qx", "qy", "qz"),
    "quaternion_xyzw": ("qx", "qy", "qz", "qw"),
    "rotation_6d": ("r1", "r2", "r3", "r4", "r5", "r6"),
}


@dataclass(frozen=True)
class ActionGroup:
    """Dimensions of an action that belong together, such as one arm or one gripper.

    Attributes:
        name: Name of the group, unique in its specification, such as ``"arm"``.
        size: Number of dimensions.
        mode: ``"absolute"`` targets, or ``"delta"`` to the current target per control step.
        kind: ``"position"`` (x, y, z; the first `size` of them), ``"pose"`` (position and rotation),
            ``"joint"`` or ``"gripper"``.
        frame: Coordinate frame of positions and poses, such as ``"base"``; empty for joints and grippers.
        rotation: Form of a pose's rotation, quaternion order included; ``"none"`` for other kinds.
        unit: Unit of the dimensions; of a pose's position (its rotation is in rad, or has no unit).
        low: Least value of each dimension; one number stands for all of them.
        high: Greatest value of each dimension, above `low`.
        names: Name of each dimension; made from the kind when empty.
    """

    name: str
    size: int
    mode: Mode
    kind: Kind
    frame: str = ""
    rotation: Rotation = "none"
    unit: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every field and fill in one limit for all dimensions and default names."""
        if self.size < 1:
            raise ValueError(f"Action group {self.name!r} has size {self.size}; at least 1 is needed.")
        for field, value, alias in (("mode", self.mode, Mode), ("kind", self.kind, Kind)):
            self._check_choice(field, value, get_args(alias.__value__))
        self._check_choice("rotation", self.rotation, tuple(_ROTATION_NAMES))
        self._check_rotation()
        object.__setattr__(self, "low", self._limits("low"))
        object.__setattr__(self, "high", self._limits("high"))
        object.__setattr__(self, "names", tuple(self.names) or self._default_names())
        if len(self.names) != self.size or len(set(self.names)) != self.size:
            raise ValueError(
                f"Action group {self.name!r} needs {self.size} different names, not {self.names}."
            )
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(
                    f"Action group {self.name!r}: {name} has low {low} and high {high}; low < high."
                )

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each dimension."""
        if self.kind != "pose":
            return (self.unit,) * self.size
        turn = "rad" if self.rotation == "rotvec" else ""
        return (self.unit,) * 3 + (turn,) * (self.size - 3)

    def _check_choice(self, field: str, value: str, allowed: Sequence[str]) -> None:
        if value not in allowed:
            raise ValueError(
                f"Action group {self.name!r}: {field} is {value!r}; allowed: {', '.join(allowed)}."
            )

    def _check_rotation(self) -> None:
        if (self.kind == "pose") != (self.rotation != "none"):
            raise ValueError(
                f"Action group {self.name!r} of kind {self.kind!r} has rotation {self.rotation!r}; a pose "
                "needs a rotation form, other kinds have 'none'."
            )
        size = 3 + len(_ROTATION_NAMES[self.rotation])
        if self.kind == "pose" and self.size != size:
            raise ValueError(
                f"Action group {self.name!r}: a pose with {self.rotation} has size {size}, not {self.size}."
            )
        if self.kind == "position" and self.size > 3:
            raise ValueError(f"Action group {self.name!r}: a position has size 1 to 3, not {self.size}.")

    def _limits(self, which: str) -> tuple[float, ...]:
        value = getattr(self, which)
        values = tuple(float(v) for v in (value if isinstance(value, Sequence) else (value,)))
        values = values * self.size if len(values) == 1 else values
        if len(values) != self.size or not np.isfinite(values).all():
            raise ValueError(
                f"Action group {self.name!r}: {which} is {value}; {self.size} finite numbers are needed."
            )
        return values

    def _default_names(self) -> tuple[str, ...]:
        if self.kind in {"position", "pose"}:
            return (("x", "y", "z") + _ROTATION_NAMES[self.rotation])[: self.size]
        stem = "joint" if self.kind == "joint" else "opening"
        return tuple(f"{stem}{i + 1}" for i in range(self.size)) if self.size > 1 else (stem,)


@dataclass(frozen=True)
class ActionSpec:
    """A whole action of A dimensions: its groups in order, and how often one is sent.

    Attributes:
        groups: Groups in the order of the action's dimensions.
        rate_hz: Control rate, Hz.
    """

    groups: tuple[ActionGroup, ...]
    rate_hz: float

    def __post_init__(self) -> None:
        """Check that there is a group, names differ and the rate is positive."""
        object.__setattr__(self, "groups", tuple(self.groups))
        names = [group.name for group in self.groups]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"An action needs at least one group and different names, not {names}.")
        if not (np.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise ValueError(f"rate_hz is {self.rate_hz}; a positive number is needed.")

    @property
    def size(self) -> int:
        """Number of dimensions A."""
        return sum(group.size for group in self.groups)

    @cached_property
    def low(self) -> NDArray[np.float64]:
        """Least value of each dimension, (A,), read-only."""
        return _constant([value for group in self.groups for value in group.low])

    @cached_property
    def high(self) -> NDArray[np.float64]:
        """Greatest value of each dimension, (A,), read-only."""
        return _constant([value for group in self.groups for value in group.high])

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each dimension, such as ``"arm.x"``."""
        return tuple(f"{group.name}.{name}" for group in self.groups for name in group.names)

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each dimension."""
        return tuple(unit for group in self.groups for unit in group.units)

    def slice(self, name: str) -> slice:
        """Where a group's dimensions lie in the action.

        Raises:
            KeyError: There is no such group.
        """
        start = 0
        for group in self.groups:
            if group.name == name:
                return slice(start, start + group.size)
            start += group.size
        raise KeyError(f"No action group {name!r}; there are {[group.name for group in self.groups]}.")

    def clip(self, action: ArrayLike) -> NDArray[np.float64]:
        """Bring actions (..., A) within the limits.

        Raises:
            ValueError: The width is wrong or a value is NaN, which no limit can mend; names the dimension.
        """
        array = self._array(action)
        self._refuse(array, np.isnan(array), "not a number")
        return np.clip(array, self.low, self.high)

    def hold(self, last: ArrayLike) -> NDArray[np.float64]:
        """Return what leaves the robot where it is: no further delta, and the last absolute targets.

        Args:
            last: The last actions, (..., A), robot units.
        """
        delta = np.concatenate([np.full(group.size, group.mode == "delta") for group in self.groups])
        return np.where(delta, np.clip(0.0, self.low, self.high), self._array(last))

    def validate(self, action: ArrayLike, *, tolerance: float = 0.0) -> NDArray[np.float64]:
        """Return actions (..., A) as float64 if every value is finite and within the limits.

        Args:
            action: Robot units.
            tolerance: How far outside is still taken, as a share of each dimension's range. Limits that went
                through float32 are off by up to 1e-7.

        Raises:
            ValueError: Otherwise; names the dimension, the value and the limits.
        """
        array = self._array(action)
        slack = tolerance * (self.high - self.low)
        self._refuse(array, ~np.isfinite(array), "not finite")
        self._refuse(array, (array < self.low - slack) | (array > self.high + slack), "outside its limits")
        return array

    def to_json(self) -> dict[str, Any]:
        """Describe the specification with JSON types only."""
        lists = ("low", "high", "names")
        groups = [asdict(g) | {name: list(getattr(g, name)) for name in lists} for g in self.groups]
        return {"groups": groups, "rate_hz": self.rate_hz}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> ActionSpec:
        """Read what `to_json` wrote.

        Raises:
            ValueError: An entry is missing, unknown or not allowed.
        """
        try:
            groups = tuple(
                ActionGroup(**{**g, "names": tuple(g.get("names", ()))}) for g in mapping["groups"]
            )
            return cls(groups, float(mapping["rate_hz"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"No action specification in {dict(mapping)!r}: {error}.") from error

    def _array(self, action: ArrayLike) -> NDArray[np.float64]:
        array = np.array(action, np.float64)
        if array.ndim == 0 or array.shape[-1] != self.size:
            raise ValueError(
                f"Action has shape {array.shape}; the last axis must be {self.size}: {self.names}."
            )
        return array

    def _refuse(self, array: NDArray[np.float64], bad: NDArray[np.bool_], why: str) -> None:
        if not bad.any():
            return
        where = tuple(np.argwhere(bad)[0])
        i = int(where[-1])
        limits = f"[{self.low[i]}, {self.high[i]}] {self.units[i]}".rstrip()
        raise ValueError(f"Action {self.names[i]} is {array[where]}: {why}; it must lie in {limits}.")


def _constant(values: list[float]) -> NDArray[np.float64]:
    array = np.array(values, np.float64)
    array.setflags(write=False)
    return array
