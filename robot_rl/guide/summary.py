"""What hooks reported in recorded episodes, one value per chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.records import Episode


def chunk_values(episodes: Sequence[Episode], key: str) -> NDArray[np.float64]:
    """Return a hook's diagnostic at the first executed step of every chunk, (N,).

    Args:
        episodes: recorded with the hook.
        key: of `Episode.extra`.
    """
    first = [np.diff(episode.chunk_id, prepend=-1) != 0 for episode in episodes]
    values = [episode.extra[key][mask] for episode, mask in zip(episodes, first, strict=True)]
    return np.asarray(np.concatenate(values), np.float64)


def percentiles(values: NDArray[np.float64]) -> dict[str, float]:
    """Return some percentiles by name."""
    return {f"p{level}": float(np.percentile(values, level)) for level in (5, 25, 50, 75, 95, 99)}


def success_share(episodes: Sequence[Episode]) -> float:
    """Return the share of successful episodes."""
    return float(np.mean([episode.success for episode in episodes]))
