"""What rows of files are compared by: flags that are flags, and rows that are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def truths(values: NDArray[Any], place: str) -> NDArray[np.bool_]:
    """Flags that a file keeps as numbers, as truth values of the same shape.

    Raises:
        DatasetError: There are others than 0 and 1: NaN would count as true without a word.
    """
    found = values != 0
    if not np.array_equal(found, values):
        others = np.unique(values[found != values])[:5].tolist()
        raise DatasetError(f"{place} holds {others}; a flag is 0 or 1. Repair the file.")
    return np.asarray(found)


def same_rows(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows of two arrays (N, ...) are equal, NaN equal to NaN; (N,)."""
    same = np.asarray(a == b)
    if a.dtype.kind == b.dtype.kind == "f":
        same = same | (np.isnan(a) & np.isnan(b))
    return np.asarray(same.all(axis=tuple(range(1, same.ndim))))
