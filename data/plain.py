"""Values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any) -> Any:  # noqa: ANN401 - recursive over every JSON-able value
    """A value with JSON types only: NumPy numbers and arrays become plain ones, NaN and infinity None.

    Raises:
        TypeError: The value holds something that is not JSON.
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in an episode's metadata.")
