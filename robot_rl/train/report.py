"""The page of a training run: held-out action error per joint against holding the last action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.manifest import atomic_write_text
from robot_rl.report.page import Page, figure
from robot_rl.report.plots import Curve, curves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from robot_rl.train.heldout import HeldOutError


def write_report(
    folder: Path, error: HeldOutError, metrics: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> Path:
    """Write ``report.html`` into a training run.

    Args:
        folder: the run directory.
        error: on the held-out windows.
        metrics: rows of metrics.jsonl.
        result: what result.json holds.

    Returns:
        The page.
    """
    summary = error.to_json()
    page = Page("robot-rl train", _headline(summary, len(error.names)), _lead(summary, result))
    page.section(
        "Held-out error per joint",
        f"Mean absolute error of a chunk over {error.windows} held-out windows ({result['held_out']}), in "
        "the action's own units. Holding repeats the last executed action; a ratio below 1 beats it.",
    )
    page.table(("joint", "unit", "policy", "holding", "ratio"), [_row(joint) for joint in summary["joints"]])
    position = np.arange(1, len(error.policy) + 1)
    scale = np.maximum(error.hold.mean(0), 1e-9)
    page.section(
        "Along the chunk, and while training",
        "Left: error at each position of the chunk, as a share of the holding error of the whole chunk, "
        "averaged over joints. Right: the training loss.",
    )
    lines = [
        Curve("policy", position, (error.policy / scale).mean(1)),
        Curve("holding the last action", position, (error.hold / scale).mean(1), colour="base"),
    ]
    rows = [row for row in metrics if row.get("loss") is not None]
    loss = [Curve("", [row["step"] for row in rows], [row["loss"] for row in rows])]
    page.figures(
        figure(curves(lines, x_label="position in the chunk", y_label="relative error", limits=None)),
        figure(curves(loss, x_label="update", y_label="loss", limits=None)),
    )
    page.folded("All figures", dict(result))
    path = folder / "report.html"
    atomic_write_text(path, page.render(f"policy {result['policy_hash'][:16]}, {result['seconds']:.0f} s"))
    return path


def _headline(summary: Mapping[str, Any], joints: int) -> str:
    better, ratio = summary["joints_better"], summary["mean_ratio"]
    if ratio is None:
        return "Nothing moved in the held-out data"
    verdict = "beats" if ratio < 1 else "does not beat"
    share = f"{ratio:.2f} times its error, better in {better} of {joints} joints"
    return f"The policy {verdict} holding the last action: {share}"


def _lead(summary: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return (
        f"Trained on {result['demonstrations']} demonstrations, {result['steps']} steps, from "
        f"{result['source']}. Held out: {result['held_out']}; {summary['windows']} windows."
    )


def _row(joint: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = "never moves" if joint["ratio"] is None else f"{joint['ratio']:.2f}"
    return (
        joint["name"],
        joint["unit"] or "as recorded",
        f"{joint['policy']:.3g}",
        f"{joint['hold_last']:.3g}",
        ratio,
    )
