"""Where a policy's training data lay, as far as its normalisation says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from policies.normalizer import Normalizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from policies.policy import Policy

type Scale = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Centre and spread of each dimension, (D,)."""

_RANGES = (("min", "max"), ("q01", "q99"), ("q10", "q90"))


def scales_of(policy: Policy) -> dict[str, Scale]:
    """Return centre and spread by robot key, "action" among them; empty where nothing is known."""
    processors = getattr(policy, "processors", None)
    if processors is not None:
        return _of_lerobot(policy, processors.tensors())
    modules = policy.modules() if isinstance(policy, nn.Module) else ()
    return {
        each.key: (each.offset.numpy(force=True).astype(float), each.scale.numpy(force=True).astype(float))
        for each in modules
        if isinstance(each, Normalizer)
    }


def _of_lerobot(policy: Any, tensors: Mapping[str, Any]) -> dict[str, Scale]:  # noqa: ANN401 - an adapter
    names = policy.keys
    known: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        key, _, statistic = rest.rpartition(".")
        if part == "normalizer" and value.ndim == 1:
            known.setdefault(names.get(key, key), {})[statistic] = value.numpy(force=True).astype(float)
    return {key: scale for key, values in known.items() if (scale := _scale(values)) is not None}


def _scale(values: Mapping[str, NDArray[np.float64]]) -> Scale | None:
    if {"mean", "std"} <= values.keys():
        return values["mean"], values["std"]
    for low, high in _RANGES:
        if {low, high} <= values.keys():
            return (values[low] + values[high]) / 2, (values[high] - values[low]) / 2
    return None
