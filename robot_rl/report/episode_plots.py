"""The plots of one episode on a page about its data set: actions, forces, and values of a critic."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from data.validate.signals import action_feature
from robot_rl.report.strips import Line, strip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from data.records import Episode
    from robot_rl.critics.curves import ValueCurves

ACTIONS = 8
"""Most action dimensions that are drawn per episode."""
ACTION_LINES = (
    ("action_base", "soft", "frozen policy"),
    ("action_policy", "base", "policy after correction"),
    ("action", "refined", "executed"),
)
"""Columns that are drawn, their class in the style sheet, and what they are."""
VALUES = 2
"""Most groups of a critic's curves that are drawn per episode."""


def value_strips(episode: Episode, critic: ValueCurves) -> str:
    """A critic's curves over the steps; those whose names end alike share a plot.

    An episode that the critic cannot judge says why: a data set may hold demonstrations too.
    """
    try:
        curves = critic.value_curves(episode)
    except ValueError as error:
        return f'<p class="note">No values: {escape(str(error))}</p>'
    groups: dict[str, list[Line]] = {}
    for name, curve in curves.items():
        first, _, last = name.rpartition("/")
        groups.setdefault(last, []).append(Line(curve, "soft" if first == "base" else "refined"))
    drawn = "".join(strip(f"value, {name}", lines) for name, lines in list(groups.items())[:VALUES])
    base = any(name.startswith("base/") for name in curves)
    key = ' Value: <i class="soft">base action</i> <i class="refined">executed</i>' if base else ""
    return f'<div class="strips">{drawn}</div><p class="note">{key}</p>'


def action_and_force_strips(episode: Episode, action_spec: Mapping[str, Any] | None) -> str:
    """Each action dimension as planned and executed, and the size of forces, over the steps."""
    names = action_feature(episode, action_spec)
    drawn = []
    for index in range(min(ACTIONS, episode.action.shape[1])):
        lines = [Line(getattr(episode, column)[:, index], style) for column, style, _ in ACTION_LINES]
        drawn.append(strip(f"action {names.dimension(index)}", lines))
    drawn += [strip(name, [Line(values)], unit) for name, values, unit in _forces(episode)]
    rest = episode.action.shape[1] - ACTIONS
    more = f'<p class="note">{rest} more action dimensions are not drawn.</p>' if rest > 0 else ""
    there = [line for line in ACTION_LINES if np.isfinite(getattr(episode, line[0])).any()]
    key = " ".join(f'<i class="{style}">{words}</i>' for _, style, words in there)
    return f'<div class="strips">{"".join(drawn)}</div><p class="note">Action: {key}</p>{more}'


def _forces(episode: Episode) -> list[tuple[str, NDArray[np.float64], str]]:
    found = [
        (key, np.asarray(rows, np.float64).reshape(len(rows), -1).max(1), "N")
        for key, rows in episode.extra.items()
        if key.endswith("force_n")
    ]
    signals = {**episode.observations, **{f"{key} (stream)": s.values for key, s in episode.streams.items()}}
    for key, rows in signals.items():
        if not len(rows):
            continue
        if ("wrench" in key or "force" in key) and rows.ndim == 2 and rows.shape[1] >= 3:
            found.append((f"|{key}|", np.linalg.norm(rows[:, :3].astype(np.float64), axis=1), "N"))
        elif "tactile" in key and rows.ndim == 4 and rows.dtype.kind == "f":
            found.append((f"{key}, sum", rows[..., -1].astype(np.float64).sum((1, 2)), "N"))
    return found
