"""Batches drawn from two replays at once: own experience beside demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.replay.batch import Batch, joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from data.replay.buffer import ReplayBuffer
    from data.replay.sampling import Sampler
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
    drawn = (
        (online, samplers[0], slice(0, from_online)),
        (prior, samplers[1], slice(from_online, count)),
    )
    used = [one for one in drawn if one[2].stop > one[2].start]
    forms = [replay.forms for replay, _, _ in used if len(replay)]
    if any(form != forms[0] for form in forms):
        raise ValueError(f"Only like replays can be mixed; these hold rows of {forms[0]} and {forms[-1]}.")
    # Both halves go into the arrays of the whole: joining pictures afterwards would copy them twice.
    now, later = used[0][0].room(count)
    parts = []
    for replay, sampler, rows in used:
        into = ({key: array[rows] for key, array in arrays.items()} for arrays in (now, later))
        parts.append(replay.sample(rows.stop - rows.start, rng, sampler, into=(next(into), next(into))))
    batch = joined(parts, now, later)
    return batch if scalings is None else batch.normalised(scalings)
