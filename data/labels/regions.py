"""Which part of an episode each step belongs to, and what its outcome may be used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data.events import EventKind
from data.labels.rule import REGIONS, Region
from data.steps import Outcome, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.records import Episode


def regions(found: NDArray[np.str_], number: NDArray[np.int64], window: int) -> NDArray[np.int8]:
    """Region of every step by its number in `REGIONS`, (T,).

    Pauses are looked through: policy, pause, person is a takeover as policy, person is. A demonstration is a
    person's act too: what comes before it is not the policy's success. The last steps before a takeover (P1)
    do not reach across a break or into an earlier person's steps.

    Args:
        found: (T,), who acted, from `segments.sources`.
        number: (T,), from `segments.run_numbers`.
        window: K, at least 1.

    Raises:
        ValueError: The window is below 1.
    """
    if window < 1:
        raise ValueError(f"The window before a takeover is {window} steps; at least 1 is needed.")
    region = np.full(len(found), REGIONS[Region.PAUSED], np.int8)
    policy, human, demo = (found == who for who in (Source.POLICY, Source.HUMAN, Source.DEMO))
    person = human | demo
    if not person.any():
        region[policy] = REGIONS[Region.AUTONOMOUS]
        return region
    region[policy] = REGIONS[Region.EARLY]
    region[human] = REGIONS[Region.HUMAN]
    region[demo] = REGIONS[Region.DEMO]
    rows = np.flatnonzero(number >= 0)
    # Of each step the next unpaused one counts: a pause hides no takeover.
    for before in rows[:-1][policy[rows[:-1]] & person[rows[1:]]]:
        start = max(int(np.argmax(number == number[before])), before + 1 - window)
        region[start : before + 1] = REGIONS[Region.LAST]
    last = np.flatnonzero(person)[-1]
    region[last + 1 :][policy[last + 1 :]] = REGIONS[Region.AFTER]
    return region


def handback(found: NDArray[np.str_]) -> int | None:
    """First step of the policy after a person acted; None when control was never given back.

    Args:
        found: (T,), who acted, from `segments.sources`.
    """
    human = np.flatnonzero(found == Source.HUMAN)
    if not len(human):
        return None
    after = np.flatnonzero(found[human[0] :] == Source.POLICY)
    return int(human[0] + after[0]) if len(after) else None


def judged_outcome(episode: Episode) -> Outcome:
    """Outcome that may serve as a label: an emergency stop is a failure only when a person said so."""
    if episode.outcome is Outcome.FAILURE and _stopped(episode):
        return Outcome.UNKNOWN
    return episode.outcome


def bootstraps(episode: Episode) -> NDArray[np.bool_]:
    """Whether a target that ends with a step adds the value of the next state, (T,).

    False only where the task ended. A time limit did not end it, nor did a takeover, a pause or an emergency
    stop that nobody judged.
    """
    if episode.outcome is not Outcome.SUCCESS and _stopped(episode):
        return np.ones(len(episode), bool)
    return ~episode.terminated


def _stopped(episode: Episode) -> bool:
    """Whether an emergency stop was recorded and no person judged the episode."""
    kinds = {event.kind for event in episode.events}
    judged = {EventKind.MARK_SUCCESS, EventKind.MARK_FAILURE}
    return EventKind.EMERGENCY_STOP in kinds and not kinds & judged
