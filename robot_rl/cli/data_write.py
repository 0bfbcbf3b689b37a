"""``robot-rl data convert`` and ``label``: episodes in another format, labels for a method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli import unknown
from robot_rl.cli.data_bar import bar, inside
from robot_rl.cli.output import counted, say
from robot_rl.cli.parsing import UsageError, parse
from robot_rl.result_file import check_result_file, write_result_file


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
    values: Path | None = None
    """classes, advantage or gate by episode id: JSON {"a-1": {"classes": [...]}} or .npz with a-1/classes"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""
    json: Path | None = None
    """write the counts for other programs"""


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
        say(("note", "dim"), f" {note}")
    marked = f"; {counted(done.receipts, 'receipt')} in {source}" if done.receipts else ""
    say(f"{counted(len(done.ids), 'episode')} in {done.path}{marked}")
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
    from robot_rl.label_files import label_all, read_values

    config = parse(LabelConfig, words, "data label")
    check_result_file(config.json)
    rule = _rule(config.rule)
    path = inside(config.path)
    given = {name: key for name in ("advantage", "gate") if (key := getattr(config, name))}
    values = None if config.values is None else read_values(config.values)
    with bar("Labelling", path, config.format) as progress:
        counts, notes = label_all(
            open_source(path, config.format, **config.read).episodes,
            rule,
            config.out,
            columns=given,
            values=values,
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
        say(("note", "dim"), f" {note}")
    if config.out:
        say(str(config.out))
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {"convert": _convert, "label": _label}
