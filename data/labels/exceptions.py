"""What no cell of the table can say: rewinds, parked operators, lost time, short suffixes, early ends.

Each function changes columns of labels in place and says in words what it left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.labels.regions import handback
from data.labels.segments import control_period
from data.labels.table import Region, Rule
from data.steps import SegmentKind, Source

if TYPE_CHECKING:
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


def leave_out_rewinds(columns: Columns, rule: Rule, episode: Episode, region: NDArray[np.str_]) -> None:
    """Steps that drive back are no example of the task, except to a method that asks for them."""
    if not rule.rewind:
        rewound = (region == Region.HUMAN) & (episode.segment_kind == SegmentKind.REWIND)
        _clear(columns, rewound, _IMITATION)


def leave_out_parked(
    columns: Columns, parked: NDArray[np.bool_] | None, region: NDArray[np.str_], notes: list[str]
) -> None:
    """Steps at which the operator held still are not imitated; the caller knows whether the task has such."""
    if parked is None:
        return
    if np.shape(parked) != region.shape:
        raise ValueError(f"parked has shape {np.shape(parked)}; {region.shape} is needed.")
    still = (region == Region.HUMAN) & np.asarray(parked, bool)
    _clear(columns, still, _IMITATION)
    if still.any():
        notes.append(f"{still.sum()} steps at which the operator held still are not imitated.")


def leave_out_crossings(
    columns: Columns, lost: NDArray[np.bool_], reward: NDArray[np.float64], notes: list[str]
) -> None:
    """What needs the next state is not learned where time was lost before it."""
    crossing = lost & (columns["critic"] | columns["progress"])
    weight = columns["bc_weight"]
    unknown = lost & ~np.isfinite(weight)
    if not (np.isfinite(weight[~lost]).all() and (weight[~unknown] >= 0).all()):
        raise ValueError(
            "gate holds values that are negative or not finite at a step whose next state is known; "
            "weights are at least 0."
        )
    weight[unknown] = 0.0
    rewarded = lost & (reward != 0) & columns["critic"].any()
    _clear(columns, crossing, ("critic", "progress"))
    if crossing.any():
        notes.append(f"{crossing.sum()} transitions are left out: time was lost before their next state.")
    if rewarded.any():
        where = np.flatnonzero(rewarded).tolist()
        notes.append(f"The rewards of steps {where} are not learned from: they fell into lost time.")


def leave_out_short_suffix(columns: Columns, region: NDArray[np.str_], least: int, notes: list[str]) -> None:
    """The outcome is not the policy's when it acted for less than a chunk after the last hand-back."""
    suffix = region == Region.AFTER
    labelled = suffix & ~np.isnan(columns["viability"])
    if labelled.any() and suffix.sum() < least:
        _clear(columns, labelled, ("viability",))
        notes.append(
            f"The outcome labels nothing: after the last hand-back the policy acted for {suffix.sum()} "
            f"steps, and {least} are needed."
        )


def cut_at_handback(columns: Columns, rule: Rule, found: NDArray[np.str_], notes: list[str]) -> None:
    """For a method whose episodes end at the first hand-back, drop what follows it."""
    first = handback(found)
    if first is None or not rule.cells[Region.AFTER].cut:
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
