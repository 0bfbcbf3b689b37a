"""From a client's message to a chunk request: everything is checked before a network sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from data.hints import did_you_mean
from policies.request import ChunkRequest, Condition
from policies.wire import WireError, read_array, read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from policies.policy import PolicySpec

LONGEST_NAME = 500
"""Characters of an episode's id."""
_KNOWN = {
    "kind", "id", "observation", "previous_chunk", "consumed", "delay", "noise", "episodes", "begins",
    "condition", "deterministic", "gain",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A checked request of a client.

    Attributes:
        request: rows with the client's own episode ids.
        noise: (B, *noise_shape), or None: the server draws it.
        begins: episodes that start with this chunk.
        condition: see `policies.request.Condition`.
        deterministic: whether a noise policy acts without exploration.
        gain: share of what the refiner changes, 0 to 1.
    """

    request: ChunkRequest
    noise: Tensor | None
    begins: tuple[str, ...]
    condition: Condition
    deterministic: bool
    gain: float


class RequestReader:
    """Checks messages and reads what they ask for.

    Args:
        spec: of the policy.
        keys: of the observation that policy and hooks read; "task" among them.
        most_rows: in one request.
    """

    def __init__(self, spec: PolicySpec, keys: Sequence[str], most_rows: int) -> None:
        self._spec, self._keys, self._most_rows = spec, tuple(keys), most_rows
        self._wanted = {
            key: (np.dtype(feature.dtype), feature.shape) for key, feature in spec.features.items()
        }

    def read(self, message: Mapping[str, Any], prefix: str = "") -> Asked:
        """Return what a message asks for.

        Args:
            message: as `policies.wire.unpack` gave it.
            prefix: of all episode ids.

        Raises:
            WireError: something is missing, unknown, of another type or shape, or not finite.
        """
        spec = self._spec
        _refuse_unknown(message, _KNOWN, "the request")
        observation = self._observation(message.get("observation"))
        rows = len(next(iter(observation.values())))
        episodes = read_texts(message.get("episodes") or [], "episodes", longest=LONGEST_NAME)
        if len(episodes) not in {0, rows}:
            raise WireError(
                f"there are {len(episodes)} episode ids for {rows} rows; give one per row or none"
            )
        begins = read_texts(message.get("begins") or [], "begins", longest=LONGEST_NAME)
        previous = _tensor(message, "previous_chunk", (rows, spec.horizon, spec.action_size), "float32")
        consumed = _tensor(message, "consumed", (rows,), "int64", least=0)
        if previous is not None and consumed is None:
            raise WireError("previous_chunk comes without consumed, the steps of it that were executed")
        delay = _tensor(message, "delay", (rows,), "int64", least=0)
        names = tuple(prefix + name for name in episodes)
        return Asked(
            ChunkRequest(observation, previous, consumed, delay, names),
            _noise(message, rows, spec),
            tuple(prefix + name for name in begins),
            _condition(message.get("condition"), rows, spec),
            _flag(message.get("deterministic", True), "deterministic"),
            _share(message.get("gain", 1.0), "gain"),
        )

    def _observation(self, entries: object) -> dict[str, Tensor | list[str]]:
        """Every key that is read, B rows each."""
        keys = self._keys
        if not isinstance(entries, dict):
            kind = type(entries).__name__
            raise WireError(f"observation is {kind}; a map of {', '.join(keys)} is expected")
        _refuse_unknown(entries, keys, "the observation")
        if missing := [key for key in keys if key not in entries]:
            raise WireError(f"the observation lacks {', '.join(missing)}; a missing sensor is never made up")
        found: dict[str, Tensor | list[str]] = {}
        rows: int | None = None
        for key in keys:
            value = read_texts(entries[key], key) if key == "task" else read_array(entries[key], key)
            if rows is None:
                rows = len(value) if isinstance(value, list) else (value.shape or (0,))[0]
                if not 1 <= rows <= self._most_rows:
                    raise WireError(f"{key} has {rows} rows; this server takes 1 to {self._most_rows}")
            found[key] = self._entry(key, value, rows)
        return found

    def _entry(self, key: str, value: NDArray[Any] | list[str], rows: int) -> Tensor | list[str]:
        if isinstance(value, list):
            if len(value) != rows:
                raise WireError(f"{key} has {len(value)} texts for {rows} rows; one each is expected")
            return value
        steps, known = self._spec.observation_steps, self._wanted.get(key)
        if known is None:  # only hooks read it, and they do not say its shape
            if value.shape[:2] != (rows, steps):
                raise WireError(f"{key} is {value.dtype} {value.shape}; ({rows}, {steps}, ...) is expected")
            return _finite(value, key)
        shape = (rows, steps, *known[1])
        if value.shape != shape or value.dtype != known[0]:
            raise WireError(f"{key} is {value.dtype} {value.shape}; {known[0]} {shape} is expected")
        return _finite(value, key)


def _refuse_unknown(found: Mapping[Any, Any], known: Sequence[str] | set[str], where: str) -> None:
    for name in found:
        if name not in known:
            text = str(name)[:100]
            hint = did_you_mean(text, sorted(known), "nobody reads it.")
            raise WireError(f"{where} holds {text!r}; {hint}")


def _tensor(
    message: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: str, least: float = -np.inf
) -> Tensor | None:
    if message.get(name) is None:
        return None
    array = read_array(message[name], name)
    if array.shape != shape or array.dtype != dtype:
        raise WireError(f"{name} is {array.dtype} {array.shape}; {dtype} {shape} is expected")
    if (array < least).any():
        raise WireError(f"{name} holds {array.min()}; it counts control steps, from {least}")
    return _finite(array, name)


def _finite(array: NDArray[Any], where: str) -> Tensor:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise WireError(f"{where} is {array[place]} at {place}; every number must be finite")
    return torch.from_numpy(array.copy())


def _noise(message: Mapping[str, Any], rows: int, spec: PolicySpec) -> Tensor | None:
    if message.get("noise") is not None and not spec.supports.noise:
        raise WireError(f"policy {spec.name!r} takes no noise; leave it out")
    return _tensor(message, "noise", (rows, *spec.noise_shape), "float32")


def _condition(value: object, rows: int, spec: PolicySpec) -> Condition:
    if value is None:
        return None
    names = [value] * rows if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) != rows:
        kind = type(value).__name__
        raise WireError(f"condition is {kind}; a text, or one text or nothing per row is expected")
    for name in names:
        if name is not None and name not in spec.supports.conditions:
            raise WireError(
                f"condition is {str(name)[:100]!r}; policy {spec.name!r} takes "
                f"{', '.join(spec.supports.conditions) or 'none'}"
            )
    return names


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise WireError(f"{name} is {type(value).__name__}; true or false is expected")
    return value


def _share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WireError(f"{name} is {str(value)[:100]}; a number from 0 to 1 is expected")
    return float(value)
