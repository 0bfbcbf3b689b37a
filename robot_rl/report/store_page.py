"""One self-contained page about a whole data set: what is in it, what is wrong with it, every episode."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import DatasetError, StoreError
from data.formats.registry import open_source
from data.manifest import atomic_write_bytes
from data.records import Episode
from data.validate import Finding, Report, Severity, validate
from robot_rl.critics.curves import ValueCurves, open_critic
from robot_rl.provenance import versions
from robot_rl.report.episode_plots import action_and_force_strips, value_strips
from robot_rl.report.page import Page
from robot_rl.report.strips import legend, segment_bar, thumbnail

OPEN = 3
"""Episodes that are open at once when there are few; more would make a long page slow."""
ENDINGS = (("success", "succeeded"), ("failure", "failed"), ("unknown", "not judged"))
LISTED = 100
"""Most findings in the table; the episodes show their own."""


@dataclass(frozen=True)
class Style:
    """How much of each episode is drawn.

    Attributes:
        thumbnails: pictures of each camera; 0 for none.
        plots: whether actions and forces are drawn.
        critic: whose values are drawn; None for none.
    """

    thumbnails: int = 5
    plots: bool = True
    critic: ValueCurves | None = None

    def __post_init__(self) -> None:
        """Check the number."""
        if not 0 <= self.thumbnails <= 50:
            raise ValueError(f"thumbnails is {self.thumbnails}, allowed is 0 to 50")


@dataclass
class _Drawn:
    """What is kept of the episodes that went by: finished HTML, no arrays."""

    style: Style
    action_spec: Mapping[str, Any] | None
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    actors: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)

    def visit(self, episode: Episode, findings: Sequence[Finding]) -> None:
        """Draw one episode."""
        self.outcomes[str(episode.outcome)] += 1
        self.tasks[episode.task] += 1
        self.actors.update(str(source) for source in episode.source)
        self.actors.update({kind for kind in np.unique(episode.segment_kind).tolist() if kind != "none"})
        body = _facts(episode) + _findings(findings)
        if self.style.thumbnails:
            body += _thumbnails(episode, self.style.thumbnails)
        if self.style.plots:
            body += action_and_force_strips(episode, self.action_spec)
        if self.style.critic:
            body += value_strips(episode, self.style.critic)
        self.rows.append((episode.id, _summary(episode, findings), body))


def write_store_page(
    path: Path,
    out: Path,
    *,
    thumbnails: int = 5,
    plots: bool = True,
    critic: Path | None = None,
    format: str | None = None,  # noqa: A002 - the usual word
    read: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write one page about a data set of any format.

    One episode is in memory at a time. A page takes about 15 kB per episode and camera, and 10 kB of plots.

    Args:
        path: the data set.
        out: the page; its folder is made.
        thumbnails: pictures of each camera per episode.
        plots: whether to draw actions and forces.
        critic: folder of a critic whose values are drawn too; see `open_critic`.
        format: of the data set; recognised by its content when None.
        read: options of the format.
        progress: called with the id of each episode.

    Returns:
        the page's path.

    Raises:
        ValueError: if ``out`` is a folder, the data set is of no known format, or the critic cannot be read.
        FileNotFoundError: if there is nothing at the path.
    """
    if out.is_dir():
        raise ValueError(f"out is {out}, which is a folder: give a file")
    judge = None if critic is None else open_critic(critic)
    drawn = _Drawn(Style(thumbnails, plots, judge), _action_spec(path, format, read or {}))
    report = validate(path, format=format, options=read, progress=progress, visit=drawn.visit)
    page = _page(path, report, drawn)
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_bytes(out, page.encode(errors="xmlcharrefreplace"))  # such as half a surrogate in a name
    return out


def _action_spec(path: Path, form: str | None, read: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        return open_source(path, form, **read).action_spec
    except (DatasetError, StoreError, OSError):  # what cannot be opened is a finding, not an end
        return None


def _page(path: Path, report: Report, drawn: _Drawn) -> str:
    told = ", ".join(f"{drawn.outcomes[name]} {words}" for name, words in ENDINGS if drawn.outcomes[name])
    tasks = "; ".join(task or "no task" for task, _ in drawn.tasks.most_common(3))
    more = f" and {len(drawn.tasks) - 3} more tasks" if len(drawn.tasks) > 3 else ""
    page = Page(
        f"robot-rl data · {path.name}",
        f"{report.episodes} episode{'s' * (report.episodes != 1)}: {told or 'none can be read'}",
        f"{tasks}{more}.",
    )
    page.numbers(_numbers(report, drawn))
    if report.findings:
        page.section("What was found", "Errors first. Each says what it is about and what to do.")
        page.add(_table(report.findings))
    page.section("Episodes", "The bar shows who acted over the steps; click an episode to see more.")
    page.add(legend(drawn.actors))
    for index, (id_, summary, body) in enumerate(drawn.rows):
        shown = " open" if index < OPEN and len(drawn.rows) <= 10 * OPEN else ""
        page.add(f'<details class="episode" id="e-{escape(id_)}"{shown}>')
        page.add(f"<summary>{summary}</summary>{body}</details>")
    known = versions()
    return page.render(f"Made with robot-rl {known['robot-rl']}, numpy {known.get('numpy', '')}.")


def _numbers(report: Report, drawn: _Drawn) -> list[tuple[str, str, str]]:
    steps = max(1, sum(drawn.actors[name] for name in ("policy", "human", "demo", "paused")))
    found = [
        (f"{report.episodes:,}", "episodes", ""),
        (f"{report.steps:,}", "steps", ""),
        (f"{report.count(Severity.ERROR)}", "errors", "base" if report.count(Severity.ERROR) else ""),
        (f"{report.count(Severity.WARNING)}", "warnings", ""),
    ]
    judged = drawn.outcomes["success"] + drawn.outcomes["failure"]
    if judged:
        share = 100 * drawn.outcomes["success"] / judged
        found.insert(2, (f"{share:.0f}\u2009%", "of the judged ones succeeded", "refined"))
    if drawn.actors["human"]:
        found.append((f"{100 * drawn.actors['human'] / steps:.1f}\u2009%", "of the steps by a person", ""))
    return found


def _table(findings: Sequence[Finding]) -> str:
    order = list(Severity)
    worst = sorted(findings, key=lambda finding: order.index(finding.severity))[:LISTED]
    rows = "".join(
        f'<tr><td class="{_class(finding)}">{finding.severity}</td><td>{finding.kind}</td>'
        f"<td>{_link(finding)}</td><td>{escape(finding.message)}</td></tr>"
        for finding in worst
    )
    rest = f'<p class="note">and {len(findings) - LISTED} more</p>' if len(findings) > LISTED else ""
    head = "<tr><th></th><th>what</th><th>where</th><th>found</th></tr>"
    return f'<table class="findings">{head}{rows}</table>{rest}'


def _class(finding: Finding) -> str:
    return {"error": "bad", "warning": "warn"}.get(str(finding.severity), "")


def _link(finding: Finding) -> str:
    place = escape(finding.place)
    return f'<a href="#e-{escape(finding.episode)}">{place}</a>' if finding.episode else place


def _summary(episode: Episode, findings: Sequence[Finding]) -> str:
    grave = [finding for finding in findings if finding.severity is not Severity.NOTE]
    kind = {"success": "good", "failure": "bad"}.get(str(episode.outcome), "")
    seconds = episode.monotonic_time[-1] - episode.monotonic_time[0]
    length = f"{len(episode)} steps" + (f", {seconds:.1f} s" if np.isfinite(seconds) else "")
    flaw = f' <span class="warn">{len(grave)} found</span>' if grave else ""
    return (
        f'<b>{escape(episode.id)}</b> <span class="{kind}">{episode.outcome}</span> '
        f'<span class="length">{length}{flaw}</span>{segment_bar(episode)}'
    )


def _facts(episode: Episode) -> str:
    facts = [
        ("task", episode.task),
        ("robot", episode.robot),
        ("operator", episode.operator),
        ("seed", "" if episode.seed is None else str(episode.seed)),
        ("base", episode.base_version[:12]),
        ("refiner", episode.refiner_version[:12]),
    ]
    words = ", ".join(f"{name} {escape(value)}" for name, value in facts if value)
    return f'<p class="note">{words}</p>' if words else ""


def _findings(findings: Sequence[Finding]) -> str:
    lines = "".join(
        f'<li><span class="{_class(finding)}">{finding.kind}</span> '
        f"{_within(finding)}{escape(finding.message)}</li>"
        for finding in findings
    )
    return f"<ul>{lines}</ul>" if lines else ""


def _within(finding: Finding) -> str:
    """Where in its episode a finding is."""
    place = finding.place.partition(", ")[2]
    return f"{escape(place)}: " if place else ""


def _thumbnails(episode: Episode, count: int) -> str:
    cameras = [(key, rows) for key, rows in episode.observations.items() if _is_camera(rows)]
    cameras += [(key, s.values) for key, s in episode.streams.items() if _is_camera(s.values)]
    shown = []
    for key, rows in cameras:
        at = np.unique(np.linspace(0, len(rows) - 1, count).astype(int))
        pictures = "".join(thumbnail(rows[index]) for index in at)
        name = key.rpartition("images.")[2]
        shown.append(
            f'<figure class="thumbs"><div>{pictures}</div><figcaption>{escape(name)}</figcaption></figure>'
        )
    return "".join(shown)


def _is_camera(rows: NDArray[Any]) -> bool:
    return rows.dtype == np.uint8 and rows.ndim == 4 and rows.shape[3] in (1, 3, 4) and len(rows) > 0
