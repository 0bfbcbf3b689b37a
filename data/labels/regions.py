"""Which part of an episode each step belongs to, and what its outcome may be used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data.events import EventKind
from data.labels.segments import numbers, runs
from data.labels.table import Region
from data.steps import Outcome, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.records import Episode


def regions(found: NDArray[np.str_], lost: NDArray[np.bool_], window: int) -> NDArray[np.str_]:
    """Region of every step, (T,) of text.

    Pauses are looked through: policy, pause, person is a takeover as policy, person is. A demonstration is a
    person's act too: what comes before it is not the policy's success. The last steps before a takeover (P1)
    do not reach across a break or into an earlier person's steps.

    Args:
        found: (T,), who acted, from `segments.sources`.
        lost: (T,), from `segments.broken`.
        window: K, at least 1.

    Raises:
        ValueError: The window is below 1.
    """
    if window < 1:
        raise ValueError(f"The window before a takeover is {window} steps; at least 1 is needed.")
    region = np.full(len(found), Region.PAUSED, "<U16")
    policy = found == Source.POLICY
    person = (found == Source.HUMAN) | (found == Source.DEMO)
    region[policy] = Region.EARLY if person.any() else Region.AUTONOMOUS
    region[found == Source.HUMAN] = Region.HUMAN
    region[found == Source.DEMO] = Region.DEMO
    parts = runs(found, lost)
    part = numbers(parts, len(found))
    rows = np.flatnonzero(part >= 0)
    # Of each step the next unpaused one counts: a pause hides no takeover.
    for before in rows[:-1][policy[rows[:-1]] & person[rows[1:]]]:
        start = max(parts[part[before]].start, before + 1 - window)
        region[start : before + 1] = Region.LAST
    if person.any():
        last = np.flatnonzero(person)[-1]
        region[last + 1 :][policy[last + 1 :]] = Region.AFTER
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
