"""Batches drawn from two replays at once: own experience beside demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.replay.batch import Batch, joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from data.replay.buffer import ReplayBuffer, Sampler
    from data.statistics import Scaling


def sample_mixture(
    online: ReplayBuffer,
    prior: ReplayBuffer,
    count: int,
    rng: np.random.Generator,
    *,
    share: float = 0.5,
    samplers: tuple[Sampler | None, Sampler | None] = (None, None),
    scalings: Mapping[str, Scaling] | None = None,
) -> Batch:
    """Draw a fixed share of a batch from each of two replays (RLPD, arXiv 2302.02948, section 4.1).

    Args:
        online: Own experience.
        prior: Demonstrations or earlier data.
        count: B, of which round(share B) come from `online`.
        rng: The only source of chance.
        share: Of online transitions, 0 to 1; 0.5 is symmetric sampling.
        samplers: How to choose in each; uniformly when None.
        scalings: What to normalise; nothing when None.

    Returns:
        The batch, the online transitions first. Transition numbers are those of each one's own replay, and
        importance weights are 1 where a sampler has none.

    Raises:
        ValueError: The share is outside 0 to 1, a replay that is drawn from is empty, or the replays hold
            different observations.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share is {share}; the online share of a batch lies between 0 and 1.")
    from_online = round(share * count)
    parts = [
        replay.sample(wanted, rng, sampler)
        for replay, sampler, wanted in zip(
            (online, prior), samplers, (from_online, count - from_online), strict=True
        )
        if wanted
    ]
    batch = parts[0] if len(parts) == 1 else joined(parts)
    return batch if scalings is None else batch.normalised(scalings)
