"""Facts and arrays as bytes, for the way to the writing process: JSON, then one array after the other."""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from data.steps import ACTION_COLUMNS, Chunk, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

_LENGTH = struct.Struct("<I")
_PLAIN = "biuf"
_SCALARS = tuple(field.name for field in fields(Step) if field.name not in ACTION_COLUMNS)


def encode(kind: str, facts: Mapping[str, Any], arrays: Mapping[str, ArrayLike]) -> list[bytes | memoryview]:
    """One message in parts, the arrays not copied.

    Raises:
        TypeError: A fact is not JSON, or an array holds other than plain numbers.
    """
    listed: list[tuple[str, str, tuple[int, ...]]] = []
    parts: list[bytes | memoryview] = []
    for name, value in arrays.items():
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if array.dtype.kind not in _PLAIN:
            raise TypeError(f"{name} is {array.dtype}; only plain numbers can be recorded.")
        listed.append((name, array.dtype.str, array.shape))
        if array.size:
            parts.append(memoryview(array.reshape(-1).view(np.uint8)))
    header = json.dumps([kind, facts, listed]).encode()
    return [_LENGTH.pack(len(header)), header, *parts]


def decode(message: memoryview) -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
    """The inverse of `encode`; arrays are views of the message."""
    (length,) = _LENGTH.unpack(message[: _LENGTH.size])
    start = _LENGTH.size + length
    kind, facts, listed = json.loads(bytes(message[_LENGTH.size : start]))
    arrays = {}
    for name, dtype, shape in listed:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = (
            np.frombuffer(message, dtype, count, start).reshape(shape) if count else np.zeros(shape, dtype)
        )
        start += count * np.dtype(dtype).itemsize
    return kind, facts, arrays


def step_parts(step: Step) -> tuple[dict[str, Any], dict[str, ArrayLike]]:
    """Facts and arrays of a step."""
    arrays = {name: value for name in ACTION_COLUMNS if (value := getattr(step, name)) is not None}
    return {name: _plain(getattr(step, name)) for name in _SCALARS}, arrays


def step_from(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Step:
    """The inverse of `step_parts`."""
    parts: dict[str, Any] = {**facts, **{name: arrays[name] for name in ACTION_COLUMNS if name in arrays}}
    return Step(**parts)


def chunk_parts(chunk: Chunk) -> tuple[dict[str, Any], dict[str, ArrayLike]]:
    """Facts and arrays of a plan."""
    values = {field.name: getattr(chunk, field.name) for field in fields(Chunk)}
    arrays: dict[str, ArrayLike] = {n: value for n, value in values.items() if isinstance(value, np.ndarray)}
    return {name: _plain(value) for name, value in values.items() if name not in arrays}, arrays


def chunk_from(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Chunk:
    """The inverse of `chunk_parts`."""
    return Chunk(**{**facts, **arrays})


def prefixed(prefix: str, arrays: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Arrays under names of a group."""
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The inverse of `prefixed`."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - a number or text, NumPy's included
    return value.item() if isinstance(value, np.generic) else value
