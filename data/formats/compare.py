"""What files are compared by: flags that are flags, rows that are equal, episodes that fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError
from data.features import differences, from_array, from_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.features import Features
    from data.records import Episode


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


def refuse_misfit(episode: Episode, features: Features, width: int) -> None:
    """Refuse to put an episode into a file whose other episodes have another form.

    Args:
        episode: The episode.
        features: What observations of the others are.
        width: How many numbers their actions have.

    Raises:
        DatasetError: It lacks an observation, has one more or one of another shape or type, or its actions
            have another length; names each.
    """
    found = {key: from_array(values[0]) for key, values in episode.observations.items()}
    bare = from_json({key: {"shape": f.shape, "dtype": f.dtype} for key, f in features.items()})
    lines = differences(bare, found, expected_by="the first one", found_in="this one")
    lines += [f"{key!r} is new." for key in found.keys() - bare.keys()]
    if episode.action.shape[1] != width:
        lines.append(f"Its actions have {episode.action.shape[1]} numbers, not {width}.")
    if lines:
        raise DatasetError(
            f"Episode {episode.id} does not fit the first one: {' '.join(lines)} Write such episodes to "
            "places of their own: robot-rl data split --ids."
        )
