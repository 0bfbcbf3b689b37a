"""From episodes to the transitions they hold, for many episodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.replay.spans import run_lengths, spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from data.replay.reach import Reach
    from data.replay.recording import Recording

type Form = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of one row."""
OBSERVATION, COLUMN, ACTION, IMITATION = "observation/", "column/", "action", "imitation_action"
"""How rings are named."""


@dataclass(frozen=True, eq=False)
class Intake:
    """The N transitions of E episodes.

    Attributes:
        whole: (5, N): row of the first observation and of the next one, counted from the first episode's
            first row; actions within the transition; actions an actor may imitate as one; steps.
        real: (2, N), reward and discount.
        flags: (2, N), terminated and truncated.
        transitions: How many each episode has, (E,).
    """

    whole: NDArray[np.int64]
    real: NDArray[np.float32]
    flags: NDArray[np.bool_]
    transitions: NDArray[np.int64]


def transitions(recordings: Sequence[Recording], reach: Reach) -> Intake:
    """Work out every transition of some episodes.

    Args:
        recordings: The episodes; their rows are counted one after the other, T + 1 each.
        reach: What a transition is.
    """
    lengths = np.array([len(one) for one in recordings])
    final = np.zeros(int(lengths.sum()), bool)
    final[lengths.cumsum() - 1] = True
    continuous = _joined([one.continuous for one in recordings], lengths, True)
    actor = _joined([one.actor for one in recordings], lengths, 0)
    starts = _joined([one.starts for one in recordings], lengths, True)
    ends = np.concatenate([one.ends for one in recordings])
    reward = np.concatenate([one.reward for one in recordings])
    found = spans(reward, ends, continuous, final, reach=reach.steps, gamma=reach.gamma)
    alone = final | ~continuous
    alone[:-1] |= actor[1:] != actor[:-1]
    actor_length = np.minimum(run_lengths(alone), reach.actions)
    use = (starts & (found.steps > 0)).nonzero()[0]
    # Each episode has one row more than it has steps.
    episode = np.arange(len(lengths)).repeat(lengths).take(use)
    row, steps = use + episode, found.steps.take(use)
    return Intake(
        whole=_table([row, row + steps, np.minimum(steps, reach.actions), actor_length.take(use), steps]),
        real=_table([found.reward.take(use), found.discount.take(use)]).astype(np.float32),
        flags=_table([found.terminated.take(use), found.truncated.take(use)]),
        transitions=np.bincount(episode, minlength=len(lengths)),
    )


def forms(recording: Recording) -> dict[str, Form]:
    """Shape and type of a row of everything a replay holds of episodes like this one."""
    found: dict[str, Form] = {ACTION: (recording.action.shape[1:], np.dtype(np.float32))}
    if recording.imitation_action is not None:
        found[IMITATION] = (recording.imitation_action.shape[1:], np.dtype(np.float32))
    for prefix, arrays in ((OBSERVATION, recording.observations), (COLUMN, recording.columns)):
        found |= {prefix + key: (array.shape[1:], array.dtype) for key, array in arrays.items()}
    return found


def groups(recordings: Sequence[Recording], capacity: int) -> Iterator[list[Recording]]:
    """Runs of episodes that a replay of so many rows can take at once, in order."""
    group: list[Recording] = []
    held = 0
    for recording in recordings:
        if held + len(recording) + 1 > capacity:
            yield group
            group, held = [], 0
        group.append(recording)
        held += len(recording) + 1
    if group:
        yield group


def _table(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """As `numpy.stack`, which takes longer than all else here when an episode is short."""
    made = np.empty((len(rows), len(rows[0])), rows[0].dtype)
    for i, row in enumerate(rows):
        made[i] = row
    return made


def _joined(parts: Sequence[NDArray[Any] | None], lengths: NDArray[np.int64], default: Any) -> NDArray[Any]:  # noqa: ANN401 - a flag or a number
    if all(part is None for part in parts):
        return np.full(int(lengths.sum()), default)
    filled = [
        np.full(length, default) if part is None else part
        for part, length in zip(parts, lengths, strict=True)
    ]
    return np.concatenate(filled)
