"""``robot-rl data``: the sub-commands that write new stores, make room, or draw a page."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli import unknown
from robot_rl.cli.data_bar import bar, inside
from robot_rl.cli.output import counted, say
from robot_rl.cli.parsing import UsageError, parse
from robot_rl.progress import stage
from robot_rl.result_file import check_result_file, write_result_file

if TYPE_CHECKING:
    from data.prune import Plan
    from data.records import Episode


@dataclass(frozen=True)
class SplitConfig:
    """Distribute the episodes of a data set over new stores; each goes into exactly one."""

    source: tyro.conf.Positional[Path]
    """what to read, of any format"""
    out: Path
    """folder that gets one store per part; must not exist"""
    parts: Mapping[str, float] = field(default_factory=dict)
    """share of each part, such as: train 0.9 val 0.1"""
    by: str = ""
    """or a fact: outcome, operator, robot or task"""
    ids: Mapping[str, str] = field(default_factory=dict)
    """or the part of each episode: a-1 train a-2 val"""
    seed: int = 0
    """seed of the draw by share"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""


@dataclass(frozen=True)
class MergeConfig:
    """Put several data sets into one new store."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """two or more, of any format"""
    out: Path
    """store to write; must not exist"""
    rename: bool = False
    """give an id that is taken a number; otherwise such an id is refused"""
    format: str | None = None
    """format of all sources; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""


@dataclass(frozen=True)
class PruneConfig:
    """Make room: show what a rule would remove, and remove it with --apply.

    Only episodes that were converted or uploaded go, and only while the converted copy is there as it was
    written.
    """

    store: tyro.conf.Positional[Path]
    """the episode store, or a run with one"""
    keep: int | None = None
    """the newest that stay"""
    max_gb: float | None = None
    """size that the store may have; the oldest go first"""
    older_than_days: float | None = None
    """episodes finished longer ago go"""
    outcomes: tuple[str, ...] = ()
    """only episodes with these outcomes may go: success, failure, unknown"""
    apply: bool = False
    """really remove them"""
    json: Path | None = None
    """write what goes and what stays for other programs"""


@dataclass(frozen=True)
class HtmlConfig:
    """Write one self-contained page about a data set: thumbnails, who acted when, plots, findings."""

    path: tyro.conf.Positional[Path]
    """an episode store, a run with one, or any other format that is known"""
    out: tyro.conf.Positional[Path]
    """the page"""
    thumbnails: int = 5
    """pictures of each camera per episode"""
    plots: bool = True
    """draw actions and forces of each episode"""
    critic: Path | None = None
    """run of a refinement, or another folder with a critic, whose values of the actions are drawn too"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""


def _split(words: list[str]) -> int:
    from data.edit import by_field, by_share, split
    from data.formats.registry import detect, open_source
    from data.store import EpisodeStore

    config = parse(SplitConfig, words, "data split")
    if sum(map(bool, (config.parts, config.by, config.ids))) != 1:
        raise UsageError("data split needs one of --parts, --by and --ids")
    source = inside(config.source)
    part_of: dict[str, str] = dict(config.ids)
    if config.by:
        with bar("Reading", source, config.format) as progress:
            opened = open_source(source, config.format, **config.read)
            part_of = by_field(_told(opened.episodes, progress), config.by)
    elif config.parts:
        if (config.format or detect(source)) == "zarr":
            ids = EpisodeStore(source).ids()
        else:
            ids = [one.id for one in open_source(source, config.format, **config.read).episodes]
        part_of = by_share(ids, config.parts, config.seed)
    with bar("Splitting", source, config.format) as progress:
        done = split(source, config.out, part_of, format=config.format, read=config.read, progress=progress)
    for path, count in done.counts.items():
        say(f"{counted(count, 'episode')} in {path}")
    _notes(done.notes)
    return 0


def _merge(words: list[str]) -> int:
    from data.edit import merge

    config = parse(MergeConfig, words, "data merge")
    with stage("Merging") as reporter:
        done = merge(
            [inside(path) for path in config.sources],
            config.out,
            rename=config.rename,
            format=config.format,
            read=config.read,
            progress=lambda _: reporter.advance(),
        )
    for old, new in done.renamed.items():
        say(f"{old} is now {new}")
    for path, count in done.counts.items():
        say(f"{counted(count, 'episode')} in {path}")
    _notes(done.notes)
    return 0


def _prune(words: list[str]) -> int:
    from data.prune import Retention, apply, plan
    from data.steps import Outcome
    from data.store import EpisodeStore

    config = parse(PruneConfig, words, "data prune")
    check_result_file(config.json)
    for outcome in config.outcomes:
        if outcome not in list(Outcome):
            raise UsageError(unknown("outcome", outcome, [str(known) for known in Outcome]))
    store = EpisodeStore(inside(config.store))
    rule = Retention(config.keep, config.max_gb, config.older_than_days, tuple(map(Outcome, config.outcomes)))
    made = plan(store, rule)
    removed: list[str] = []
    if config.apply:
        with stage("Removing", len(made.remove)) as reporter:
            removed = apply(store, made, progress=lambda _: reporter.advance())
    _show_plan(made, removed, applied=config.apply)
    content = {
        "removed": removed,
        "remove": [candidate.id for candidate in made.remove],
        "protected": [candidate.id for candidate in made.protected],
        "unreadable": made.unreadable,
        "bytes": made.size,
        "freed": made.freed,
    }
    write_result_file(config.json, content)
    return 0


def _show_plan(made: "Plan", removed: list[str], *, applied: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("episode", "MB", "why", "where else it is"):
        table.add_column(column, overflow="fold", justify="right" if column == "MB" else "left")
    for one in (*made.remove, *made.protected):
        receipt = one.receipt
        where = "[yellow]nowhere known: it stays[/]"
        if receipt:
            lost = f"; not kept there: {' '.join(receipt.lost)}" if receipt.lost else ""
            where = escape(f"{receipt.kind} to {receipt.target} as {receipt.format}{lost}")
        table.add_row(escape(one.id), f"{one.size / 1e6:.2f}", escape(one.because), where)
    if made.remove or made.protected:
        Console().print(table)
    for id_, damage in made.unreadable.items():
        say(("cannot be read, stays", "bold red"), f" {id_}: {damage}")
    verb = f"{len(removed)} removed" if applied else f"{len(made.remove)} would go"
    say(
        f"{verb} of {made.count} episodes, {made.freed / 1e6:.2f} of {made.size / 1e6:.2f} MB; "
        f"{len(made.protected)} stay because they exist nowhere else"
    )
    if made.remove and not applied:
        say("nothing was removed: add --apply")


def _html(words: list[str]) -> int:
    config = parse(HtmlConfig, words, "data html")
    from robot_rl.report.store_page import write_store_page

    path = inside(config.path)
    with bar("Drawing", path, config.format) as progress:
        page = write_store_page(
            path,
            config.out,
            thumbnails=config.thumbnails,
            plots=config.plots,
            critic=config.critic,
            format=config.format,
            read=config.read,
            progress=progress,
        )
    size = page.stat().st_size
    say(f"{page} ({size / 1e6:.1f} MB)" if size >= 1e6 else f"{page} ({size / 1e3:.0f} kB)")
    return 0


def _told(episodes: Iterable["Episode"], progress: Callable[[str], None]) -> Iterator["Episode"]:
    for episode in episodes:
        yield episode
        progress(episode.id)


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(("note", "dim"), f" {note}")


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "split": _split,
    "merge": _merge,
    "prune": _prune,
    "html": _html,
}
