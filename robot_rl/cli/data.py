"""``robot-rl data``: look at data sets, check, convert and label them; editing is in `data_edit`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli import unknown
from robot_rl.cli.output import say
from robot_rl.cli.parsing import UsageError, parse, split_word
from robot_rl.progress import stage
from robot_rl.result_file import check_result_file, write_result_file

if TYPE_CHECKING:
    from data.describe import Description
    from data.validate import Finding, Report

ACTIONS = ("info", "validate", "convert", "label", "split", "merge", "prune", "html")
STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
SHOWN = 200
"""Most findings on the screen; the JSON file holds all of them."""


@dataclass(frozen=True)
class InfoConfig:
    """Say what a data set holds: episodes, outcomes, who acted, features, streams and actions."""

    path: tyro.conf.Positional[Path]
    """an episode store, a run with one, a LeRobotDataset, or any other format that is known"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""
    json: Path | None = None
    """write it for other programs"""


@dataclass(frozen=True)
class ValidateConfig:
    """Find what is wrong with recorded data, and say where; the exit code is 1 when something is."""

    path: tyro.conf.Positional[Path]
    """an episode store, a run with one, a LeRobotDataset, or any other format that is known"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""
    ignore: tuple[str, ...] = ()
    """kinds of findings to leave out, such as missing_outcome"""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """other thresholds than usual, such as frozen_s 1.0; the documentation lists them"""
    json: Path | None = None
    """write every finding for other programs"""


@dataclass(frozen=True)
class ConvertConfig:
    """Write a data set in another format, one episode in memory at a time."""

    source: tyro.conf.Positional[Path]
    """what to read"""
    target: tyro.conf.Positional[Path]
    """what to write; must not exist"""
    to: str
    """format to write: lerobot, robomimic, zarr, or module:Class"""
    format: str | None = None
    """format of the source; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format that is read"""
    write: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format that is written"""


@dataclass(frozen=True)
class LabelConfig:
    """Derive the labels that a learning method needs, count them, and write them when asked to."""

    path: tyro.conf.Positional[Path]
    """an episode store, a run with one, or any other format that is known"""
    rule: str
    """method whose labels are wanted"""
    out: Path | None = None
    """folder for one .npz per episode; must not exist"""
    window: int | None = None
    """policy steps before a takeover that count as its cause; the method's own by default"""
    advantage: str = ""
    """diagnostic of the episodes that holds the advantage, for methods with an indicator"""
    gate: str = ""
    """diagnostic of the episodes that holds the gate, for methods with one"""
    json: Path | None = None
    """write the counts for other programs"""


def run(words: list[str]) -> int:
    """Run one of the sub-commands."""
    from robot_rl.cli import data_edit

    action, rest = split_word(words, "data", "sub-command", ACTIONS)
    here: dict[str, Callable[[list[str]], int]] = {
        "info": _info,
        "validate": _validate,
        "convert": _convert,
        "label": _label,
    }
    return (here.get(action) or data_edit.COMMANDS[action])(rest)


@contextmanager
def bar(name: str, path: Path, form: str | None = None) -> Iterator[Callable[[str], None]]:
    """Progress over the episodes of a data set.

    Yields:
        a function to call with each episode's id.
    """
    from data.formats.registry import detect
    from data.store import EpisodeStore

    total = len(EpisodeStore(path)) if path.exists() and (form or detect(path)) == "zarr" else None
    with stage(name, total) as reporter:
        yield lambda _: reporter.advance()


def inside(path: Path) -> Path:
    """The episode store of a run, or the path itself."""
    inner = path / "episodes"
    return inner if (inner / "zarr.json").is_file() and not (path / "zarr.json").is_file() else path


def _info(words: list[str]) -> int:
    from data.describe import describe

    config = parse(InfoConfig, words, "data info")
    check_result_file(config.json)
    path = inside(config.path)
    with bar("Reading", path, config.format) as progress:
        found = describe(path, format=config.format, progress=progress, options=config.read)
    write_result_file(config.json, found.to_json())
    _show(found)
    return 0


def _show(found: "Description") -> None:
    hours = f"{found.seconds / 3600:.2f} h" if found.seconds >= 3600 else f"{found.seconds:.1f} s"
    say(
        f"{escape(str(found.path))}: {found.episodes} episodes, {found.steps} steps, {hours}, "
        f"{found.bytes / 1e6:.1f} MB, format {found.format}"
    )
    for name in ("outcomes", "tasks", "robots", "operators", "sources", "segments", "events"):
        counts = getattr(found, name)
        if counts and set(counts) != {""}:
            many = counts.most_common(6)
            rest = f", and {len(counts) - 6} more" if len(counts) > 6 else ""
            say(f"{name}: " + escape(", ".join(f"{key or 'none'} {count}" for key, count in many) + rest))
    rows = [(key, feature, "") for key, feature in found.features.items()]
    rows += [(key, feature, f" at {rate:.0f} Hz") for key, (feature, rate) in found.streams.items()]
    width = max((len(key + rate) for key, _, rate in rows), default=0)
    for key, feature, rate in rows:
        form = f"{feature.dtype}{list(feature.shape)} {feature.unit}".strip()
        say(escape(f"{(key + rate).ljust(width)}  {form.ljust(20)}  {' '.join(feature.names)}".rstrip()))
    for group in (found.action_spec or {}).get("groups", ()):
        names = " ".join(map(str, group.get("names") or ()))
        say(escape(f"action {group['name']}: {group['size']} {group['kind']}, {group['mode']}, {names}"))
    for id_, steps in found.partial.items():
        say(f"[yellow]not finished[/] {escape(id_)}: {steps} steps")
    for id_, damage in found.damaged.items():
        say(f"[bold red]damaged[/] {escape(id_)}: {escape(damage)}")
    for note in found.notes:
        say(f"[dim]note[/] {escape(note)}")


def _validate(words: list[str]) -> int:
    from data.config import from_dict
    from data.validate import Kind, Thresholds, validate

    config = parse(ValidateConfig, words, "data validate")
    check_result_file(config.json)
    for kind in config.ignore:
        if kind not in list(Kind):
            raise UsageError(unknown("kind of finding", kind, [str(known) for known in Kind]))
    path = inside(config.path)
    with bar("Checking", path, config.format) as progress:
        report = validate(
            path,
            format=config.format,
            thresholds=from_dict(Thresholds, dict(config.thresholds)),
            progress=progress,
            options=config.read,
        )
    report = report.without({Kind(kind) for kind in config.ignore})
    write_result_file(config.json, {"path": str(path), **report.to_json()})
    _show_findings(report)
    return 0 if report.fine else 1


def _show_findings(report: "Report") -> None:
    from data.validate import Severity

    grouped = _grouped(report.findings)
    for finding, times in grouped[:SHOWN]:
        others = f" (and {times - 1} more like it)" if times > 1 else ""
        style = STYLES[finding.severity]
        say(
            f"[{style}]{finding.severity}[/] [bold]{finding.kind}[/] {escape(finding.place + others)}\n"
            f"    {escape(finding.message)}"
        )
    if len(grouped) > SHOWN:
        say(f"... and {len(grouped) - SHOWN} more; --json FILE keeps all")
    counts = ", ".join(f"{report.count(severity)} {severity}s" for severity in Severity)
    left = "".join(f"; {count} of kind {kind} ignored" for kind, count in report.ignored.items())
    say(f"{report.episodes} episodes, {report.steps} steps: {counts}{left}")
    if report.measured:
        lag = report.measured["lag_steps"]
        seconds = f" ({abs(report.measured['lag_s']):.3g} s)" if "lag_s" in report.measured else ""
        order = "comes before" if lag < 0 else "follows"
        say(f"The motion {order} the action by {abs(lag):g} steps{seconds}.")


def _grouped(findings: Sequence["Finding"]) -> list[tuple["Finding", int]]:
    """The first of the findings that say the same of several episodes, and how many; the worst first."""
    first: dict[tuple[str, ...], Finding] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for finding in findings:
        own = finding.episode if finding.kind == "damaged" else ""  # each is damaged in its own way
        key = (finding.severity, finding.kind, finding.feature, finding.dimension, own)
        first.setdefault(key, finding)
        times[key] += 1
    order = list(STYLES)
    return [(first[key], times[key]) for key in sorted(first, key=lambda key: order.index(key[0]))]


def _convert(words: list[str]) -> int:
    from data.convert import convert

    config = parse(ConvertConfig, words, "data convert")
    source = inside(config.source)
    _check_format(config.to)
    with bar("Converting", source, config.format) as progress:
        done = convert(
            source,
            config.target,
            config.to,
            format=config.format,
            read=config.read,
            write=config.write,
            progress=progress,
        )
    for note in done.notes:
        say(f"[dim]note[/] {escape(note)}")
    marked = f"; {done.receipts} receipts in {source}" if done.receipts else ""
    say(escape(f"{len(done.ids)} episodes in {done.path}{marked}"))
    return 0


def _check_format(name: str) -> None:
    from data.formats.registry import writable_names

    known = writable_names()
    if ":" not in name and name not in known:
        raise UsageError(unknown("format to write", name, known))


def _rule(name: str) -> str:
    from data.labels import TABLE, find_rule

    try:
        return find_rule(name).name
    except KeyError:
        raise UsageError(unknown("rule", name, list(TABLE))) from None


def _label(words: list[str]) -> int:
    from data.formats.registry import open_source
    from robot_rl.label_files import label_all

    config = parse(LabelConfig, words, "data label")
    check_result_file(config.json)
    rule = _rule(config.rule)
    path = inside(config.path)
    given = {name: key for name in ("advantage", "gate") if (key := getattr(config, name))}
    with bar("Labelling", path) as progress:
        counts, notes = label_all(
            open_source(path).episodes,
            rule,
            config.out,
            columns=given,
            progress=progress,
            window=config.window,
        )
    write_result_file(config.json, {"path": str(path), "rule": rule, "counts": dict(counts), "notes": notes})
    table = Table(box=None, pad_edge=False)
    table.add_column("label")
    table.add_column("steps", justify="right")
    for name, count in sorted(counts.items()):
        table.add_row(escape(name), str(count))
    Console().print(table)
    for note in notes:
        say(f"[dim]note[/] {escape(note)}")
    if config.out:
        say(escape(str(config.out)))
    return 0
