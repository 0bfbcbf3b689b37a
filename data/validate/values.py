"""Checks of values: not finite, and actions at their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.steps import ACTION_COLUMNS
from data.validate.finding import Finding, Kind, Severity
from data.validate.signals import action_feature, per_dimension

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from data.records import Episode
    from data.validate.signals import Signal
    from data.validate.thresholds import Thresholds

_REPAIR = "Cut these steps or the episode; never fill them with zeros."


def check_finite(
    episode: Episode, parts: Sequence[Signal], action_spec: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """NaN and infinity in observations, streams, actions and the reward.

    A row of NaN in a proposed or intended action means that there was none, which is no finding.
    """
    for part in parts:
        if part.rows.dtype.kind == "f":
            yield from _not_finite(episode, part.key, part.flat, part.times, part.dimension)
    feature = action_feature(episode, action_spec)
    times = episode.monotonic_time
    for name in ACTION_COLUMNS[:-1]:
        column = getattr(episode, name)
        given = np.where(np.isnan(column).all(1)[:, None], 0.0, column)
        yield from _not_finite(episode, name, given, times, feature.dimension)
    for name in ("reward", "gain"):
        column = getattr(episode, name)
        if not np.isnan(column).all():  # all of them NaN: not recorded
            yield from _not_finite(episode, name, column[:, None], times, lambda _: "")
    for key, rows in episode.extra.items():
        if rows.dtype.kind == "f" and np.isinf(rows).any():
            wrong = np.flatnonzero(np.isinf(rows.reshape(len(rows), -1)).any(1))
            yield Finding.at(
                Kind.NOT_FINITE,
                Severity.WARNING,
                f"Infinite in {len(wrong)} steps.",
                episode=episode.id,
                feature=key,
                times=times,
                rows=wrong,
            )


def _not_finite(
    episode: Episode,
    key: str,
    rows: NDArray[np.float64],
    times: NDArray[np.float64],
    name: Any,  # noqa: ANN401 - a callable
) -> Iterator[Finding]:
    bad = ~np.isfinite(rows)
    for index in np.flatnonzero(bad.any(0)):
        wrong = np.flatnonzero(bad[:, index])
        text = f"{rows[wrong[0], index]} in {len(wrong)} of {len(rows)} rows. {_REPAIR}"
        yield Finding.at(
            Kind.NOT_FINITE,
            Severity.ERROR,
            text,
            episode=episode.id,
            feature=key,
            dimension=name(int(index)),
            times=times,
            rows=wrong,
        )


def check_saturated(
    episode: Episode, action_spec: Mapping[str, Any] | None, thresholds: Thresholds
) -> Iterator[Finding]:
    """Share of steps at which a dimension of the executed action stands at its limit.

    Limits come from the action's specification; without one, a dimension that stays at its greatest or least
    value while another one moves is taken for limited. Grippers are meant to go to their limits.
    """
    action = episode.action
    if len(episode) < thresholds.saturated_steps:
        return
    low, high = (np.array(per_dimension(action_spec, field), float) for field in ("low", "high"))
    kinds = per_dimension(action_spec, "kind")
    names = action_feature(episode, action_spec)
    declared = len(low) == len(high) == action.shape[1]
    if not declared:
        low, high = np.nanmin(action, 0), np.nanmax(action, 0)
    slack = 1e-6 * (high - low)
    at = (action <= low + slack) | (action >= high - slack)
    if not declared:
        at &= _another_moves(action)
    share = at.mean(0)
    for index in np.flatnonzero(share >= thresholds.saturated):
        switch = len(np.unique(action[:, index])) <= thresholds.distinct and not declared
        if switch or (kinds and kinds[index] == "gripper") or "gripper" in names.dimension(int(index)):
            continue
        text = (
            f"At the limit ({low[index]:.4g} or {high[index]:.4g}) in {100 * share[index]:.0f} % of the "
            "steps: what was meant is cut off. Widen the limits of the action, or move slower."
        )
        yield Finding.at(
            Kind.SATURATED,
            Severity.WARNING,
            text,
            episode=episode.id,
            feature="action",
            dimension=names.dimension(int(index)),
            times=episode.monotonic_time,
            rows=np.flatnonzero(at[:, index]),
        )


def _another_moves(action: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(T, A), whether any other dimension differs from the step before."""
    moves = np.diff(action, axis=0, prepend=action[:1]) != 0
    return np.asarray((moves.sum(1)[:, None] - moves) > 0)
