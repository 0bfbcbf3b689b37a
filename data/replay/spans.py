"""How far a transition reaches from each step, and what it is worth.

A transition starts at step t, reaches over at most `reach` steps and ends at the observation after its last
one. It never crosses the end of an episode, nor a step after which time was lost (that step belongs to no
transition, since its next state was not seen), and it ends where the task ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Spans:
    """Of every step, each array (T,).

    Attributes:
        steps: Steps that the transition reaches over; 0 where none starts.
        reward: Sum of gamma^i r_{t+i} over these steps.
        discount: gamma^steps, or 0 where the task ended with the last of them.
        terminated: The task ended with the last of them.
        truncated: It had to end before or at `reach` because the recording did, not the task.
    """

    steps: NDArray[np.int64]
    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


def run_lengths(last: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Steps from each step to the next one marked as last, both counted, (T,).

    Args:
        last: (T,), True at the last step of every run; the last entry must be True.
    """
    after = last.nonzero()[0] + 1
    lengths = after.copy()
    lengths[1:] -= after[:-1]
    return np.asarray(after.repeat(lengths) - np.arange(len(last)))


def spans(
    reward: NDArray[np.floating],
    ends: NDArray[np.bool_],
    continuous: NDArray[np.bool_],
    final: NDArray[np.bool_],
    *,
    reach: int,
    gamma: float,
) -> Spans:
    """Transitions of one or several episodes one after the other.

    Args:
        reward: (T,).
        ends: (T,), the task ended with this step; a time limit, a takeover and a pause do not end it.
        continuous: (T,), no time was lost between this step and the next observation.
        final: (T,), last step of an episode.
        reach: Most steps of a transition: n of an n-step target times the actions of a chunk.
        gamma: Discount per step.

    Returns:
        The transitions.
    """
    last = ends | final | ~continuous
    last[:-1] |= ~continuous[1:]
    left = np.where(continuous, run_lengths(last), 0)
    steps = np.minimum(left, reach)
    value = np.where(steps > 0, reward, 0.0) if reach == 1 else _returns(reward, steps, gamma)
    end = np.arange(len(reward)) + np.maximum(steps, 1) - 1
    terminated = ends[end] & (steps > 0)
    return Spans(
        steps=steps,
        reward=value,
        discount=np.where(terminated, 0.0, _powers(gamma, reach).take(steps)),
        terminated=terminated,
        truncated=(left <= reach) & (steps > 0) & ~terminated,
    )


@cache
def _powers(gamma: float, reach: int) -> NDArray[np.float64]:
    return np.asarray(gamma ** np.arange(reach + 1))


def _returns(reward: NDArray[np.floating], steps: NDArray[np.int64], gamma: float) -> NDArray[np.float64]:
    total = np.zeros(len(reward))
    for i in range(int(steps.max(initial=0))):
        ahead = len(reward) - i
        total[:ahead] += np.where(steps[:ahead] > i, gamma**i * reward[i:], 0.0)
    return total
