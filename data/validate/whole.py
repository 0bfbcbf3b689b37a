"""Checks of an episode as a whole: its outcome, its end, whether it was recorded to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data.errors import LengthError
from data.steps import Outcome
from data.validate.finding import Finding, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from data.records import Episode


def check_whole(episode: Episode) -> Iterator[Finding]:
    """Outcome, end and completeness of an episode."""
    if episode.outcome is Outcome.UNKNOWN:
        yield Finding(
            kind=Kind.OUTCOME,
            severity=Severity.WARNING,
            message="Nobody said how it ended. Mark it success or failure: critics and filters need it.",
            episode=episode.id,
        )
    if episode.metadata.get("recovered"):
        yield Finding(
            kind=Kind.PARTIAL,
            severity=Severity.WARNING,
            message=f"Recovered from a recording that broke off after {len(episode)} steps; no end.",
            episode=episode.id,
            first_step=len(episode) - 1,
            last_step=len(episode) - 1,
        )
    ends = np.flatnonzero((episode.terminated | episode.truncated)[:-1])
    if len(ends):
        text = (
            f"{len(ends)} steps before the last one end the episode, the first at step {ends[0]}: several "
            "episodes may have been joined. Split it there."
        )
        yield Finding.at(
            Kind.EARLY_END,
            Severity.ERROR,
            text,
            episode=episode.id,
            feature="terminated",
            times=episode.monotonic_time,
            rows=ends,
        )


def unreadable(error: Exception, episode: str = "") -> Finding:
    """What an error says that a reader raised for one episode.

    Lengths that disagree are told from other damage by the error that caused it.
    """
    causes = (error, error.__cause__)
    kind = Kind.LENGTHS if any(isinstance(cause, LengthError) for cause in causes) else Kind.DAMAGED
    return Finding(kind=kind, severity=Severity.ERROR, message=" ".join(str(error).split()), episode=episode)


def unfinished(id_: str, steps: int, *, active: bool) -> Finding:
    """A recording of a store that was never finished."""
    if active:
        text = f"It is being recorded at this moment; {steps} steps so far."
        return Finding(kind=Kind.PARTIAL, severity=Severity.NOTE, message=text, episode=id_)
    text = (
        f"The recording broke off; {steps} steps can be recovered (EpisodeStore.recover), or discard it "
        "(EpisodeStore.discard)."
    )
    return Finding(kind=Kind.PARTIAL, severity=Severity.WARNING, message=text, episode=id_)
