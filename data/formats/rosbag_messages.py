"""Numbers of ROS 2 messages: one array per message, with its time stamp and its meaning.

Only standard message types are read, from definitions that come with the rosbags package; definitions that
lie in a bag are never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.errors import DatasetError
from data.features import Feature
from data.formats.extras import require
from data.formats.pictures import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from data.formats.limits import Budget
    from data.formats.rosbag_mapping import Topic

_NS = 1_000_000_000
_CHANNELS = {"rgb8": (3, [0, 1, 2]), "bgr8": (3, [2, 1, 0]), "rgba8": (4, [0, 1, 2]), "bgra8": (4, [2, 1, 0])}
_SINGLE = {"mono8": "u1", "8UC1": "u1", "mono16": "u2", "16UC1": "u2", "32FC1": "f4"}
_JOINT_UNITS = {"position": "rad", "velocity": "rad/s", "effort": "N m"}
_XYZ = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class Sample:
    """Numbers of one message.

    Attributes:
        value: The array.
        names: Name of each element, or none.
    """

    value: NDArray[Any]
    names: tuple[str, ...] = ()


class Decoder:
    """Turns the messages of one topic into arrays of one shape and type.

    Args:
        topic: What is taken.
        kind: Type of its messages.
        place: The bag and key, for messages.

    Raises:
        DatasetError: Messages of this type, or this field of them, are not read.
    """

    def __init__(self, topic: Topic, kind: str, place: str) -> None:
        self._topic, self._kind, self._place = topic, kind, place
        if kind not in _READERS:
            raise DatasetError(
                f"{place}: topic {topic.topic} holds {kind}; read are {', '.join(sorted(_READERS))}."
            )
        allowed = _FIELDS.get(kind, ("",))
        self._field = topic.field or allowed[0]
        if self._field not in allowed:
            raise DatasetError(f"{place}: {kind} has no {topic.field!r}; it has {[f for f in allowed if f]}.")
        self._names = topic.names
        self._form: tuple[tuple[int, ...], str] | None = None
        self.skipped = 0

    @property
    def has_stamp(self) -> bool:
        """Whether messages of this type carry a time stamp."""
        return self._kind not in _STAMPLESS

    def message(self, raw: bytes) -> Any:  # noqa: ANN401 - a class of the rosbags package
        """Unpack a message.

        Raises:
            DatasetError: It is cut short or broken.
        """
        try:
            return _store().deserialize_cdr(raw, self._kind)
        except Exception as error:  # generated code raises what it likes on broken content
            raise DatasetError(
                f"{self._place}: a message of {self._topic.topic} is broken: {error!r}."
            ) from error

    def stamp_ns(self, message: Any) -> int:  # noqa: ANN401 - see `message`
        """Time stamp of its header, ns.

        Raises:
            DatasetError: The stamp is zero: nobody set it.
        """
        stamp = message.header.stamp
        found = int(stamp.sec) * _NS + int(stamp.nanosec)
        if found == 0:
            raise DatasetError(
                f"{self._place}: messages of {self._topic.topic} have no time stamp in their header; "
                "use clock = 'receive'."
            )
        return found

    def value(self, message: Any, budget: Budget) -> NDArray[Any] | None:  # noqa: ANN401 - see `message`
        """Numbers of a message; None where it says nothing of the joints that are wanted.

        Raises:
            DatasetError: Joints are missing, the encoding is unknown, or the shape differs from the messages
                before.
        """
        sample = _READERS[self._kind](message, self._field, self._names, budget, self._place)
        if sample is None:
            self.skipped += 1
            return None
        form = (sample.value.shape, str(sample.value.dtype))
        if self._form is None:
            self._form, self._names = form, sample.names or self._names
        if form != self._form:
            raise DatasetError(
                f"{self._place}: a message of {self._topic.topic} holds {form[1]}{form[0]}, those before "
                f"{self._form[1]}{self._form[0]}."
            )
        return sample.value

    def feature(self) -> Feature:
        """What the arrays are, once one was read."""
        assert self._form is not None
        shape, dtype = self._form
        unit = self._topic.unit or (_JOINT_UNITS.get(self._field, "") if self._kind in _JOINT_KINDS else "")
        if len(shape) == 3:
            unit = self._topic.unit or ("mm" if dtype == "uint16" else "m" if dtype == "float32" else "")
            return Feature(shape, dtype, unit, ("height", "width", "channel"), layout="hwc")
        names = self._names if len(self._names) == shape[0] else ()
        return Feature(
            shape, dtype, unit, names, rotations=_ROTATIONS.get(self._kind, ()), mode=self._topic.mode
        )


@cache
def _store() -> Any:  # noqa: ANN401 - a class of the rosbags package
    typesys = require("rosbags.typesys", "formats", "Reading a ROS 2 bag")
    return typesys.get_typestore(typesys.Stores.ROS2_KILTED)


def by_name(
    there: Sequence[str], values: NDArray[Any], wanted: Sequence[str], place: str
) -> NDArray[np.float64] | None:
    """Values in the order of the names that are wanted; None where the message has none of them.

    Raises:
        DatasetError: Some names are missing, or there are not as many values as names.
    """
    index = {name: i for i, name in enumerate(there)}
    lost = [name for name in wanted if name not in index]
    if len(lost) == len(wanted):
        return None
    if lost or not len(values) == len(there) == len(index):
        raise DatasetError(
            f"{place}: a message has {len(values)} values for joints {list(there)}; wanted are "
            f"{list(wanted)}. A missing joint is an error, never zero."
        )
    return np.asarray(values, np.float64)[[index[name] for name in wanted]]


def _joints(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample | None:  # noqa: ANN401
    there = [str(name) for name in message.name]
    values = np.asarray(getattr(message, field), np.float64)
    budget.spend(values.nbytes, "joints")
    found = by_name(there, values, names or there, place)
    return None if found is None else Sample(found, tuple(names or there))


def _trajectory(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample | None:  # noqa: ANN401
    """The first point: where the joints shall be next."""
    there = [str(name) for name in message.joint_names]
    if not message.points:
        return None
    values = np.asarray(
        getattr(message.points[0], {"position": "positions", "velocity": "velocities"}[field])
    )
    budget.spend(values.nbytes, "joints")
    found = by_name(there, values, names or there, place)
    return None if found is None else Sample(found, tuple(names or there))


def _numbers(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, place
    budget.spend(len(message.data) * 8, "numbers")
    return Sample(np.asarray(message.data, np.float64), tuple(names))


def _joy(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del place
    values = np.asarray(getattr(message, field), np.float32 if field == "axes" else np.int32)
    budget.spend(values.nbytes, "axes")
    return Sample(values, tuple(names))


def _wrench(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, names, budget, place
    force, torque = message.wrench.force, message.wrench.torque
    value = [getattr(part, axis) for part in (force, torque) for axis in _XYZ]
    return Sample(np.array(value, np.float64), ("fx", "fy", "fz", "tx", "ty", "tz"))


def _twist(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, names, budget, place
    linear, angular = message.twist.linear, message.twist.angular
    value = [getattr(part, axis) for part in (linear, angular) for axis in _XYZ]
    return Sample(np.array(value, np.float64), ("vx", "vy", "vz", "wx", "wy", "wz"))


def _pose(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, names, budget, place
    position, turn = message.pose.position, message.pose.orientation
    value = [position.x, position.y, position.z, turn.x, turn.y, turn.z, turn.w]
    return Sample(np.array(value, np.float64), ("x", "y", "z", "qx", "qy", "qz", "qw"))


def _image(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, names
    encoding, height, width = str(message.encoding), int(message.height), int(message.width)
    channels, order = _CHANNELS.get(encoding, (1, [0]))
    if encoding not in _CHANNELS and encoding not in _SINGLE:
        raise DatasetError(
            f"{place}: images in encoding {encoding!r}; read are {', '.join([*_CHANNELS, *_SINGLE])}."
        )
    kind = np.dtype(_SINGLE.get(encoding, "u1")).newbyteorder(">" if message.is_bigendian else "<")
    row = width * channels * kind.itemsize
    step, data = int(message.step), np.asarray(message.data, np.uint8)
    if height < 1 or width < 1 or step < row or data.size < step * (height - 1) + row:
        raise DatasetError(
            f"{place}: an image of {width} x {height} {encoding} has rows of {step} bytes and {data.size} "
            f"bytes in all; {row} and {step * (height - 1) + row} are needed."
        )
    budget.spend(height * width * len(order) * kind.itemsize, f"an image of {width} x {height}")
    rows = np.lib.stride_tricks.as_strided(data, (height, row), (step, 1), writeable=False)
    pixels = np.ascontiguousarray(rows).view(kind).reshape(height, width, channels)
    return Sample(pixels[..., order].astype(kind.newbyteorder("="), copy=False))


def _compressed(message: Any, field: str, names: Sequence[str], budget: Budget, place: str) -> Sample:  # noqa: ANN401
    del field, names
    if "compressedDepth" in str(message.format):
        raise DatasetError(
            f"{place}: pictures of format {message.format!r} are not read; record the raw depth image, 16UC1."
        )
    return Sample(decode(np.asarray(message.data, np.uint8).tobytes(), budget, place))


_JOINT_KINDS = ("sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory")
_READERS: dict[str, Callable[[Any, str, Sequence[str], Budget, str], Sample | None]] = {
    "sensor_msgs/msg/JointState": _joints,
    "trajectory_msgs/msg/JointTrajectory": _trajectory,
    "std_msgs/msg/Float64MultiArray": _numbers,
    "sensor_msgs/msg/Joy": _joy,
    "geometry_msgs/msg/WrenchStamped": _wrench,
    "geometry_msgs/msg/TwistStamped": _twist,
    "geometry_msgs/msg/PoseStamped": _pose,
    "sensor_msgs/msg/Image": _image,
    "sensor_msgs/msg/CompressedImage": _compressed,
}
_FIELDS = {
    "sensor_msgs/msg/JointState": ("position", "velocity", "effort"),
    "trajectory_msgs/msg/JointTrajectory": ("position", "velocity"),
    "sensor_msgs/msg/Joy": ("axes", "buttons"),
}
_STAMPLESS = ("std_msgs/msg/Float64MultiArray",)
_ROTATIONS: dict[str, tuple[tuple[int, str], ...]] = {
    "geometry_msgs/msg/PoseStamped": ((3, "quaternion_xyzw"),),
}
