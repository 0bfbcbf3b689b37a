"""``robot-rl data info`` and ``validate``: what a data set holds, and what is wrong with it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from robot_rl.cli import unknown
from robot_rl.cli.data_bar import bar, inside
from robot_rl.cli.output import counted, say
from robot_rl.cli.parsing import UsageError, parse
from robot_rl.result_file import check_result_file, write_result_file

if TYPE_CHECKING:
    from data.describe import Description
    from data.validate import Finding, Report

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
    hours = "no times" if math.isnan(found.seconds) else hours
    say(
        f"{found.path}: {found.episodes} episodes, {found.steps} steps, {hours}, "
        f"{found.bytes / 1e6:.1f} MB, format {found.format}"
    )
    for name in ("outcomes", "tasks", "robots", "operators", "sources", "segments", "events"):
        counts = getattr(found, name)
        if counts and set(counts) != {""}:
            many = counts.most_common(6)
            rest = f", and {len(counts) - 6} more" if len(counts) > 6 else ""
            say(f"{name}: " + ", ".join(f"{key or 'none'} {count}" for key, count in many) + rest)
    rows = [(key, feature, "") for key, feature in found.features.items()]
    rows += [(key, feature, f" at {rate:.0f} Hz") for key, (feature, rate) in found.streams.items()]
    width = max((len(key + rate) for key, _, rate in rows), default=0)
    for key, feature, rate in rows:
        form = f"{feature.dtype}{list(feature.shape)} {feature.unit}".strip()
        say(f"{(key + rate).ljust(width)}  {form.ljust(20)}  {' '.join(feature.names)}".rstrip())
    for group in (found.action_spec or {}).get("groups", ()):
        names = " ".join(map(str, group.get("names") or ()))
        say(f"action {group['name']}: {group['size']} {group['kind']}, {group['mode']}, {names}")
    for id_, steps in found.partial.items():
        say(
            ("not finished", "yellow"),
            f" {id_}: {counted(steps, 'step')}; robot-rl data recover makes an episode of it",
        )
    for id_, damage in found.damaged.items():
        say(("damaged", "bold red"), f" {id_}: {damage}")
    for note in found.notes:
        say(("note", "dim"), f" {note}")


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
            (str(finding.severity), style),
            " ",
            (str(finding.kind), "bold"),
            f" {finding.place}{others}\n    {finding.message}",
        )
    if len(grouped) > SHOWN:
        say(f"... and {len(grouped) - SHOWN} more; --json FILE keeps all")
    counts = ", ".join(counted(report.count(severity), severity) for severity in Severity)
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


COMMANDS: dict[str, Callable[[list[str]], int]] = {"info": _info, "validate": _validate}
