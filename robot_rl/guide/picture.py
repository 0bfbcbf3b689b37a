"""A picture of an episode's distance from what was demonstrated, with the guided chunks marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from data.records import Episode


def draw_distance(
    path: Path,
    episode: Episode,
    threshold: float,
    *,
    distance: str = "lpb.distance",
    active: str = "lpb.active",
) -> None:
    """Draw the distance chunk by chunk.

    Args:
        path: of the PNG file.
        episode: recorded with the hook.
        threshold: above which it guides.
        distance: name of its diagnostic, in units of spread.
        active: name of that which says whether a chunk was guided.
    """
    from matplotlib.figure import Figure

    steps = np.arange(len(episode))
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    guided = np.asarray(episode.extra[active], bool)
    for step in steps[guided]:
        axes.axvspan(step - 0.5, step + 0.5, color="tab:orange", alpha=0.25, linewidth=0)
    axes.step(steps, episode.extra[distance], where="mid", color="tab:blue", label="distance of each chunk")
    axes.axhline(threshold, color="tab:red", linestyle="--", linewidth=1, label="guided above")
    axes.set_xlabel("control step (orange: guided)")
    axes.set_ylabel("distance to the demonstrations")
    axes.set_title(f"{episode.id}: {episode.outcome}", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
