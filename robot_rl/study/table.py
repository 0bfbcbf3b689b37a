"""Tables and figures of a study, made from its finished cells and from nothing else."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data.manifest import atomic_write_text
from robot_rl.statistics import paired_difference, wilson_interval
from robot_rl.study.cell import Finished, read_cell
from robot_rl.study.plan import PLAIN, Study, StudyError, cells, study_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACTIVE = ".active_share"
"""End of the names of facts that say how often a hook acted."""


@dataclass(frozen=True)
class Row:
    """One method and arm on one task, over all its training seeds."""

    task: str
    method: str
    arm: str
    control: bool
    cells: tuple[Finished, ...]
    """finished cells by training seed"""

    @property
    def rates(self) -> list[float]:
        """Success rate per training seed."""
        return [float(np.mean(cell.outcomes)) for cell in self.cells]

    @property
    def rate(self) -> float:
        """Success rate over all episodes."""
        return float(np.mean(self.pooled))

    @property
    def pooled(self) -> list[bool]:
        """Success per episode, training seed by training seed."""
        return [outcome for cell in self.cells for outcome in cell.outcomes]

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson interval over all episodes."""
        return wilson_interval(sum(self.pooled), len(self.pooled))

    @property
    def median_steps(self) -> str:
        """Median control steps of successful episodes."""
        steps = [s for cell in self.cells for s, good in zip(cell.steps, cell.outcomes, strict=True) if good]
        return f"{np.median(steps):.0f}" if steps else "-"

    @property
    def shares(self) -> dict[str, float]:
        """How often each hook acted, by its name: the mean over training seeds of the share of steps."""
        ends = _ACTIVE
        names = sorted({name for cell in self.cells for name in cell.facts if name.endswith(ends)})
        return {
            name.removesuffix(ends): float(
                np.mean([cell.facts[name] for cell in self.cells if name in cell.facts])
            )
            for name in names
        }

    @property
    def name(self) -> str:
        """What tells it from other rows of its task."""
        setting = "" if self.arm == PLAIN else f", {self.arm}"
        return f"{self.method}{setting}" + (" (control)" if self.control else "")


def rows_of(study: Study) -> list[Row]:
    """Rows in the order of the file; those without a finished cell are left out."""
    found: dict[tuple[str, str, str], list[Finished]] = {}
    controls: dict[str, bool] = {arm.name: arm.control for arm in study.arms}
    for cell in cells(study):
        finished = read_cell(cell, study.results)
        if finished is not None:
            found.setdefault((cell.task, cell.method, cell.arm), []).append(finished)
    order = itertools.product(study.tasks, study.methods, study.arms)
    keys = [(task.name, method.name, arm.name) for task, method, arm in order]
    return [Row(*key, controls[key[2]], tuple(found[key])) for key in keys if key in found]


def write_table(study: Study) -> list[Path]:
    """Write ``NAME.md`` and ``NAME.png`` into the study's docs folder.

    Raises:
        StudyError: if no cell is finished, or the folder cannot be written.
    """
    rows = rows_of(study)
    if not rows:
        raise StudyError(f"study {study.name} has no finished cell in {study.results}: run it first")
    study_folder(study.docs)
    page, figure = study.docs / f"{study.name}.md", study.docs / f"{study.name}.png"
    _draw(rows, figure)
    atomic_write_text(page, "\n".join(_lines(study, rows, figure.name)) + "\n")
    return [page, figure]


def _lines(study: Study, rows: Sequence[Row], figure: str) -> Iterator[str]:
    done, total = sum(len(row.cells) for row in rows), len(cells(study))
    yield f"# {study.name}"
    yield ""
    yield _standing(study, done, total)
    for task in dict.fromkeys(row.task for row in rows):
        yield from ("", f"## {task}", "")
        yield from _table(study, [row for row in rows if row.task == task])
    yield from ("", f"![success rates with 95 % intervals, dots are training seeds]({figure})", "")
    hours = sum(cell.core_seconds for row in rows for cell in row.cells) / 3600
    yield f"Made from {done} cells in `{study.results / study.name}`, {hours:.2f} core-hours."


def _standing(study: Study, done: int, total: int) -> str:
    seeds = f"{len(study.seeds)} training seed{'s' if len(study.seeds) > 1 else ''}"
    size = f"{seeds}, {study.episodes} episodes per arm on the same seeds"
    unfinished = "" if done == total else f" **Unfinished: {done} of {total} cells.**"
    if study.tier == 2:
        return f"Tier 2, exploratory ({size}). It claims no ordering of its rows.{unfinished}"
    return (
        f"Tier 1 ({size}). Rates over all episodes with Wilson intervals; differences are paired by training "
        "and evaluation seed (Newcombe). A row counts as different only if its interval excludes 0 and every "
        f"training seed agrees on the sign.{unfinished}"
    )


def _table(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    compare = study.tier == 1
    hooks = sorted({name for row in rows for name in row.shares})
    header = ["method, arm", "success", "95 % interval", "per training seed", "median steps"]
    header += [f"steps with {name}" for name in hooks]
    header += [f"minus {rows[0].name}", "different?"] if compare else []
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        low, high = row.interval
        fields = [row.name, _percent(row.rate), f"{_percent(low)} to {_percent(high)}"]
        fields += [", ".join(_percent(rate) for rate in row.rates), row.median_steps]
        fields += [_percent(row.shares[name]) if name in row.shares else "" for name in hooks]
        fields += _comparison(rows[0], row) if compare else []
        yield "| " + " | ".join(fields) + " |"


def _comparison(first: Row, row: Row) -> list[str]:
    mine, theirs = _by_seed(row), _by_seed(first)
    seeds = sorted(mine.keys() & theirs.keys())
    if row is first or not seeds:
        return ["", ""]
    before = [outcome for seed in seeds for outcome in theirs[seed]]
    after = [outcome for seed in seeds for outcome in mine[seed]]
    found = paired_difference(before, after)
    low, high = found.interval
    signs = {np.sign(np.mean(mine[seed]) - np.mean(theirs[seed])) for seed in seeds}
    if len(seeds) < 3:
        verdict = "unfinished"
    elif (low > 0 or high < 0) and len(signs) == 1:
        verdict = "better" if low > 0 else "worse"
    else:
        verdict = "not shown"
    return [f"{100 * found.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})", verdict]


def _by_seed(row: Row) -> Mapping[int, Sequence[bool]]:
    return {cell.cell.seed: cell.outcomes for cell in row.cells}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _draw(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row.task for row in rows))
    most = max(sum(row.task == task for row in rows) for task in tasks)
    figure = Figure(figsize=(7.5, len(tasks) * (0.42 * most + 1.0)), layout="constrained", dpi=150)
    for axes, task in zip(figure.subplots(len(tasks), 1, squeeze=False)[:, 0], tasks, strict=True):
        _draw_task(axes, task, [row for row in rows if row.task == task])
    figure.savefig(path, metadata={"Software": None})


def _draw_task(axes: "Axes", task: str, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        colour = "#8a6d3b" if row.control else "#0b7a75"
        low, high = (100 * limit for limit in row.interval)
        axes.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.3, solid_capstyle="round")
        axes.plot(
            [100 * rate for rate in row.rates], [place] * len(row.rates), "o", color=colour, markersize=3.5
        )
        axes.plot(
            [100 * row.rate], [place], "o", color=colour, markersize=8, markerfacecolor="white", clip_on=False
        )
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("success in %")
    axes.set_title(task, loc="left", fontsize=10)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
