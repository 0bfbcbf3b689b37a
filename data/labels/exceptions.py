"""What no cell of the table can say: rewinds, parked operators, lost time, short suffixes, early ends.

Each function changes columns of labels in place and says in words what it left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.labels.regions import handback
from data.labels.rule import REGIONS, Region, Rule
from data.labels.segments import control_period
from data.steps import SegmentKind, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from data.records import Episode

type Columns = dict[str, NDArray[Any]]

NOTHING: dict[str, Any] = {
    "bc_weight": 0.0,
    "critic": False,
    "online": False,
    "prior": False,
    "viability": np.nan,
    "progress": False,
    "indicator": -1,
    "preference": -1,
}
"""Labels of a step that a method does not use."""
_IMITATION = ("bc_weight", "prior", "indicator", "preference")
"""Columns by which a policy is told to do as was done here."""


def leave_out_rewinds(columns: Columns, rule: Rule, episode: Episode, region: NDArray[np.int8]) -> None:
    """Steps that drive back are no example of the task, except to a method that asks for them."""
    human = region == REGIONS[Region.HUMAN]
    if not rule.rewind and human.any():
        _clear(columns, human & (episode.segment_kind == SegmentKind.REWIND), _IMITATION)


def leave_out_parked(
    columns: Columns, parked: NDArray[np.bool_] | None, region: NDArray[np.int8], notes: list[str]
) -> None:
    """Steps at which the operator held still are not imitated; the caller knows whether the task has such."""
    if parked is None:
        return
    if np.shape(parked) != region.shape:
        raise ValueError(f"parked has shape {np.shape(parked)}; {region.shape} is needed.")
    still = (region == REGIONS[Region.HUMAN]) & np.asarray(parked, bool)
    _clear(columns, still, _IMITATION)
    if still.any():
        notes.append(f"{still.sum()} steps at which the operator held still are not imitated.")


def leave_out_crossings(
    columns: Columns, lost: NDArray[np.bool_], reward: NDArray[np.float64], notes: list[str]
) -> None:
    """What needs the next state is not learned where time was lost before it."""
    weight = columns["bc_weight"]
    unknown = lost & ~np.isfinite(weight)
    if not (np.isfinite(weight[~lost]).all() and (weight[~unknown] >= 0).all()):
        raise ValueError(
            "gate holds values that are negative or not finite at a step whose next state is known; "
            "weights are at least 0."
        )
    if not lost.any():
        return
    weight[unknown] = 0.0
    crossing = lost & (columns["critic"] | columns["progress"])
    rewarded = lost & (reward != 0) & columns["critic"].any()
    _clear(columns, crossing, ("critic", "progress"))
    if crossing.any():
        notes.append(f"{crossing.sum()} transitions are left out: time was lost before their next state.")
    if rewarded.any():
        where = np.flatnonzero(rewarded).tolist()
        notes.append(f"The rewards of steps {where} are not learned from: they fell into lost time.")


def leave_out_short_suffix(
    columns: Columns, region: NDArray[np.int8], least: Callable[[], int], notes: list[str]
) -> None:
    """The outcome is not the policy's when it acted for less than a chunk after the last hand-back."""
    suffix = region == REGIONS[Region.AFTER]
    if not suffix.any():
        return
    labelled = suffix & ~np.isnan(columns["viability"])
    if labelled.any() and suffix.sum() < least():
        _clear(columns, labelled, ("viability",))
        notes.append(
            f"The outcome labels nothing: after the last hand-back the policy acted for {suffix.sum()} "
            f"steps, and {least()} are needed."
        )


def cut_at_handback(columns: Columns, rule: Rule, found: NDArray[np.str_], notes: list[str]) -> None:
    """For a method whose episodes end at the first hand-back, drop what follows it."""
    first = handback(found) if rule.cells[Region.AFTER].cut else None
    if first is None:
        return
    after = np.zeros(len(found), bool)
    after[first:] = found[first:] != Source.PAUSED
    _clear(columns, after, tuple(NOTHING))
    human = int((found[first:] == Source.HUMAN).sum())
    notes.append(
        f"{rule.title} ends an episode at the first hand-back: {after.sum()} steps from step {first} on are "
        f"dropped, {human} of them a person's."
    )


def one_chunk(episode: Episode, period: float | None) -> int:
    """Steps of one whole planned chunk; without chunks, of one second."""
    if episode.chunks:
        return max(len(chunk.actions) for chunk in episode.chunks)
    usual = control_period(episode.monotonic_time) if period is None else period
    return max(1, round(1.0 / usual)) if usual > 0 else 1


def _clear(columns: Columns, rows: NDArray[np.bool_], names: tuple[str, ...]) -> None:
    for name in names:
        columns[name][rows] = NOTHING[name]
