"""Labels of an episode for a method: the boundary table applied to the recorded facts.

Labels are derived each time they are needed and never stored in place of the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.labels.exceptions import (
    Columns,
    cut_at_handback,
    leave_out_crossings,
    leave_out_parked,
    leave_out_rewinds,
    leave_out_short_suffix,
    one_chunk,
)
from data.labels.regions import bootstraps, judged_outcome, regions
from data.labels.result import Labels
from data.labels.rule import REGIONS, Imitate, Indicator, Rule
from data.labels.segments import blocks, broken, run_numbers, sources
from data.labels.table import find_rule
from data.steps import Outcome, Source

if TYPE_CHECKING:
    from data.records import Episode

_NAMES = np.array([*REGIONS], "<U16")
CLASSES = ("progress", "recovery", "idle", "failure")
"""What a critic may call a step; the first two are imitated."""


@dataclass(frozen=True, eq=False)
class _Given:
    """Values of the caller."""

    advantage: NDArray[Any] | None
    threshold: float
    gate: NDArray[Any] | None
    classes: NDArray[Any] | None


def label(
    episode: Episode,
    rule: str | Rule,
    *,
    window: int | None = None,
    period: float | None = None,
    suffix: int | None = None,
    advantage: NDArray[Any] | None = None,
    threshold: float = 0.0,
    gate: NDArray[Any] | None = None,
    classes: NDArray[Any] | None = None,
    parked: NDArray[np.bool_] | None = None,
) -> Labels:
    """Label every step of an episode for one method.

    Args:
        episode: The recorded facts.
        rule: Name of a row of the table, or a rule of your own.
        window: K, policy steps before a takeover that count as P1; the rule's own when None.
        period: Control period, s; the usual interval between steps when None. Give infinity when the times
            say nothing, as in a simulation that steps as fast as it can.
        suffix: Policy steps after the last hand-back that are needed before the outcome is the policy's own;
            one whole chunk, or 1 s of steps without chunks, when None. A success right after a hand-back is
            the person's.
        advantage: (T,), for methods with an indicator: finite at every policy step.
        threshold: The indicator is 1 where the advantage is above it.
        gate: (T,), not negative, for methods with a gate; NaN only where `Labels.continuous` is False.
        classes: (T,) of text, for methods that drop idle and failing steps: see `CLASSES`.
        parked: (T,), human steps at which the operator only held still; they are not imitated.

    Returns:
        The labels.

    Raises:
        KeyError: There is no such rule.
        ValueError: The method needs values that are missing, or values have the wrong length or are not
            what is allowed.
    """
    row = find_rule(rule)
    found = sources(episode)
    lost = broken(episode, period, found)
    segment = run_numbers(found, lost)
    region = regions(found, segment, row.window if window is None else window)
    given = _Given(advantage, threshold, gate, classes)
    _check(given, episode, row, region)
    notes: list[str] = []
    columns = _columns(row, region, judged_outcome(episode), given)
    leave_out_rewinds(columns, row, episode, region)
    leave_out_parked(columns, parked, region, notes)
    leave_out_crossings(columns, lost, episode.reward, notes)
    leave_out_short_suffix(
        columns, region, lambda: one_chunk(episode, period) if suffix is None else suffix, notes
    )
    cut_at_handback(columns, row, found, notes)
    keep = _kept(columns)
    columns["online"] &= keep
    columns["prior"] &= keep
    return Labels(
        episode_id=episode.id,
        rule=row.name,
        region=_NAMES.take(region),
        segment=segment,
        block=blocks(found, lost),
        continuous=~lost,
        bootstrap=bootstraps(episode),
        keep=keep,
        notes=tuple(notes),
        **columns,
    )


def imitation_actions(episode: Episode) -> NDArray[np.float64]:
    """Actions to imitate, (T, A) in robot units: what a person meant where one acted, else what was executed.

    Never the policy's proposal. Where what the person meant was not recorded, the executed action stands.
    """
    meant = episode.action_intended
    person = (episode.source == Source.HUMAN) | (episode.source == Source.DEMO)
    use = person & np.isfinite(meant).all(axis=1)
    return np.where(use[:, None], meant, episode.action)


def _check(given: _Given, episode: Episode, rule: Rule, region: NDArray[np.int8]) -> None:
    cells = [cell for where, cell in rule.special if (region == REGIONS[where]).any()]
    uses = {
        "advantage": (given.advantage, any(cell.indicator is Indicator.ADVANTAGE for cell in cells)),
        "gate": (given.gate, any(cell.imitate is Imitate.GATE for cell in cells)),
        "classes": (given.classes, any(cell.imitate is Imitate.CLASS for cell in cells)),
    }
    for name, (value, needed) in uses.items():
        if needed and value is None:
            raise ValueError(
                f"{rule.title} needs {name} of shape ({len(episode)},) for the policy's steps of episode "
                f"{episode.id}; compute it with the method's critic and pass {name}= (on the command "
                "line, by episode in a file: --values FILE)."
            )
        if value is not None and np.shape(value) != (len(episode),):
            raise ValueError(
                f"{name} has shape {np.shape(value)}; episode {episode.id} needs ({len(episode)},)."
            )
    unknown = set(map(str, np.unique(given.classes))) - set(CLASSES) if given.classes is not None else set()
    if unknown:
        raise ValueError(f"classes holds {sorted(unknown)}; allowed: {list(CLASSES)}.")


def _kept(columns: Columns) -> NDArray[np.bool_]:
    used: NDArray[np.bool_] = (columns["bc_weight"] > 0) | columns["critic"] | columns["progress"]
    used |= ~np.isnan(columns["viability"]) | (columns["indicator"] >= 0) | (columns["preference"] >= 0)
    return used


def _columns(rule: Rule, region: NDArray[np.int8], outcome: Outcome, given: _Given) -> Columns:
    """What the table says of each step."""
    columns: Columns = {name: cells.take(region) for name, cells in rule.lookup.items()}
    success = outcome is Outcome.SUCCESS
    columns["progress"] &= success
    known = columns["viability"] if outcome is not Outcome.UNKNOWN else False
    columns["viability"] = np.where(known, float(success), np.full(len(region), np.nan))
    for where, cell in rule.special:
        rows = region == REGIONS[where]
        if rows.any():
            columns["bc_weight"][rows] = _weights(cell.imitate, rows, success=success, given=given)
            columns["indicator"][rows] = _indicators(cell.indicator, rows, given)
    return columns


def _weights(imitate: Imitate, rows: NDArray[np.bool_], *, success: bool, given: _Given) -> Any:  # noqa: ANN401 - a number or an array of them
    if imitate is Imitate.GATE and success:
        assert given.gate is not None
        return given.gate[rows]
    if imitate is Imitate.CLASS:
        assert given.classes is not None
        return np.isin(given.classes[rows], CLASSES[:2])
    return float(imitate is Imitate.YES or (imitate is Imitate.SUCCESS and success))


def _indicators(indicator: Indicator, rows: NDArray[np.bool_], given: _Given) -> Any:  # noqa: ANN401 - a number or an array of them
    if indicator is Indicator.ADVANTAGE:
        assert given.advantage is not None
        values = np.asarray(given.advantage)[rows]
        if not np.isfinite(values).all():
            raise ValueError("advantage is not finite at a step of the policy; every one needs a number.")
        return values > given.threshold
    return 1 if indicator is Indicator.FORCED else -1
