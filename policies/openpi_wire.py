"""Messages of openpi's protocol: msgpack, in which an array is a map with byte keys. Starts without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


def pack(message: Mapping[str, Any]) -> bytes:
    """Return a message of openpi's protocol.

    Args:
        message: texts, numbers, lists, maps and arrays of numbers.
    """
    packed: bytes = msgpack.packb(message, default=_map_of)
    return packed


def _map_of(value: object) -> dict[bytes, Any]:
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf":
        raise TypeError(f"{type(value).__name__} has no place in a message")
    more: dict[bytes, Any] = {b"dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), **more}
    return {b"__ndarray__": True, b"data": value.tobytes(), **more, b"shape": value.shape}


def unpack(data: bytes) -> Any:  # noqa: ANN401 - whatever a server sends
    """Read a message of openpi's protocol; arrays are read-only.

    Raises:
        ValueError: it is no msgpack, or an array in it is not one of numbers.
    """
    return msgpack.unpackb(data, object_hook=_value_of)


def _value_of(found: dict[Any, Any]) -> Any:  # noqa: ANN401 - an array, a number or the map itself
    if b"__ndarray__" not in found and b"__npgeneric__" not in found:
        return found
    dtype = np.dtype(found[b"dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype} is refused; only numbers are read")
    if b"__npgeneric__" in found:
        return dtype.type(found[b"data"])
    return np.frombuffer(found[b"data"], dtype).reshape(found[b"shape"])
