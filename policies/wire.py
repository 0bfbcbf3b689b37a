"""Messages of a policy server: msgpack maps, in which an array is a map of its type, shape and bytes.

No pickles, no objects, no extension types: whatever arrives is numbers, texts, lists and maps of a bounded
number, or it is refused. ``docs/serve.md`` lists the messages. Starts without torch.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PROTOCOL = 1
"""Version of the messages; server and client must have the same."""
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64")
MOST_CONTAINERS = 20_000
"""Lists and maps in one message."""
MOST_ITEMS = 65_536
"""Entries of one list or map."""
MOST_TEXT = 1_000_000
"""Bytes of one text."""
MOST_AXES = 8
_ARRAY = {"dtype", "shape", "data"}
_LITTLE = {name: np.dtype(name).newbyteorder("<") for name in DTYPES}
_NAMES = {dtype: name for name, little in _LITTLE.items() for dtype in (little, little.newbyteorder(">"))}
_of_thread = threading.local()


class WireError(ValueError):
    """A message is not what the protocol says; the text names the place, what is there and what is wanted."""


def pack(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes.

    Args:
        message: texts, numbers, None, lists, maps with text keys, and arrays of a type in `DTYPES`.

    Raises:
        TypeError: it holds something else.
    """
    if not hasattr(_of_thread, "packer"):  # making one for each message costs as much as packing two pictures
        _of_thread.packer = msgpack.Packer(default=_plain)
    packed: bytes = _of_thread.packer.pack(message)
    return packed


def _plain(value: object) -> dict[str, Any]:
    name = _NAMES.get(value.dtype) if isinstance(value, np.ndarray) else None
    if name is None or not isinstance(value, np.ndarray):
        what = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{what} cannot be sent; arrays may hold {', '.join(DTYPES)}")
    array = np.ascontiguousarray(value, _LITTLE[name])
    return {"dtype": name, "shape": list(value.shape), "data": array.data if array.size else b""}


def unpack(data: bytes | str, most_bytes: int | None = None) -> dict[str, Any]:
    """Read a message.

    Args:
        data: one websocket message.
        most_bytes: that are read; None: any number.

    Raises:
        WireError: it is text, too large, no msgpack, no map, or holds more than the limits of this module.
    """
    if most_bytes is not None and len(data) > most_bytes:
        raise WireError(f"the message has {len(data):,} bytes; at most {most_bytes:,} are read")
    if isinstance(data, str):
        raise WireError("a text message came; messages are binary msgpack maps")
    count = _Count()
    try:
        message = msgpack.unpackb(
            data,
            list_hook=count.container,
            object_hook=count.container,
            ext_hook=_refuse_extension,
            max_array_len=MOST_ITEMS,
            max_map_len=MOST_ITEMS,
            max_str_len=MOST_TEXT,
            max_ext_len=16,
        )
    except WireError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        what = str(error) or type(error).__name__
        raise WireError(f"a message of {len(data)} bytes is no msgpack within the limits: {what}") from error
    if not isinstance(message, dict):
        raise WireError(f"the message is {_kind(message)}; it must be a map")
    return message


class _Count:
    """Bounds the containers of one message, so that few bytes cannot become much memory."""

    def __init__(self) -> None:
        self._left = MOST_CONTAINERS

    def container[C](self, found: C) -> C:
        self._left -= 1
        if self._left < 0:
            raise WireError(f"the message holds more than {MOST_CONTAINERS} lists and maps")
        return found


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise WireError(f"the message holds extension type {code} ({len(data)} bytes); none is allowed")


def read_array(entry: object, where: str) -> NDArray[Any]:
    """Return the array that an entry of a message describes, read-only.

    Args:
        entry: of the message.
        where: what it is called, for the message.

    Raises:
        WireError: it is no array, of a type that is not allowed, or its bytes do not fit its shape.
    """
    if not isinstance(entry, dict) or entry.keys() != _ARRAY:
        raise WireError(f"{where} is {_kind(entry)}; an array is a map with dtype, shape and data")
    name, shape, data = entry["dtype"], entry["shape"], entry["data"]
    if not isinstance(name, str) or name not in _LITTLE:
        raise WireError(f"{where} has dtype {_short(name)}; allowed: {', '.join(DTYPES)}")
    sizes = shape if isinstance(shape, list) else [-1]
    if len(sizes) > MOST_AXES or any(type(size) is not int or size < 0 for size in sizes):
        raise WireError(f"{where} has shape {_short(shape)}; at most {MOST_AXES} sizes from 0 are expected")
    dtype = _LITTLE[name]
    wanted = math.prod(sizes) * dtype.itemsize
    if not isinstance(data, bytes) or len(data) != wanted:
        there = f"{len(data)} bytes" if isinstance(data, bytes) else _kind(data)
        raise WireError(f"{where} of {name} {tuple(sizes)} comes with {there}; {wanted} bytes are expected")
    flat: NDArray[Any] = np.frombuffer(data, np.uint8) != 0 if name == "bool" else np.frombuffer(data, dtype)
    return flat.reshape(sizes)


def read_texts(entry: object, where: str, *, longest: int = 10_000) -> list[str]:
    """Return a list of texts.

    Args:
        entry: of the message.
        where: what it is called, for the message.
        longest: characters of one text.

    Raises:
        WireError: it is something else.
    """
    if not isinstance(entry, list) or not all(isinstance(text, str) for text in entry):
        raise WireError(f"{where} is {_kind(entry)}; a list of texts is expected")
    if any(len(text) > longest for text in entry):
        raise WireError(f"{where} holds a text of {max(map(len, entry))} characters; allowed: {longest}")
    return entry


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return f"a map of {_short(sorted(map(str, value)))}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
