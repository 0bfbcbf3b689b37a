"""Batches from the numbers of transitions: a few gathers without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data.replay.batch import Arrays, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.replay.reach import Reach
    from data.replay.rows import Rows


def gather(
    rows: Rows,
    found: tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]],
    numbers: NDArray[np.int64],
    reach: Reach,
    into: tuple[Arrays, Arrays] | None,
) -> Batch:
    """Some transitions as a batch.

    Args:
        rows: What was observed and done.
        found: The transitions, as `Transitions.take` gives them.
        numbers: Theirs, (B,).
        reach: What a transition is.
        into: Where to put observations and next observations, by key, each (B, ...); into new arrays when
            None.
    """
    now, later = into or rows.room(len(numbers))
    whole, real, flags = found
    row, after, length, actor_length, steps = whole
    rows.observe(row, after, now, later)
    acted = row
    if reach.chunk is not None:
        # Past the end of a chunk its last action repeats.
        last = np.maximum(length, actor_length)[:, None] - 1
        acted = (row[:, None] + np.minimum(np.arange(reach.actions), last)) % rows.capacity
    return Batch(
        now,
        later,
        rows.actions(acted),
        real[0],
        real[1],
        flags[0],
        flags[1],
        length,
        actor_length,
        steps,
        rows.columns(row),
        numbers,
        imitation_action=rows.imitation_actions(acted),
    )
