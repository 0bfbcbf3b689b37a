"""``robot-rl study``: run a grid of experiments, or make tables and figures of it."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse, split_word
from robot_rl.study.plan import read_study

SUMMARIES = {
    "run": "run the cells that are not finished yet",
    "table": "write the table and the figure, from finished cells",
}


@dataclass(frozen=True)
class StudyRunConfig:
    """Run the cells of a study that are not finished yet, as many at a time as there are cores."""

    file: tyro.conf.Positional[Path]
    """TOML or JSON file of the study"""
    minutes: float = 60.0
    """stop cleanly after that; the next run goes on"""
    budget: float | None = None
    """core-hours it may take; the file's own by default"""
    workers: int = 0
    """cores to use; 0 is all"""


@dataclass(frozen=True)
class StudyTableConfig:
    """Write the table and the figure of a study into docs/, from its finished cells only."""

    file: tyro.conf.Positional[Path]
    """TOML or JSON file of the study"""


def run(words: list[str]) -> int:
    """Run a study or write its table."""
    action, rest = split_word(words, "study", "sub-command", SUMMARIES)
    return _run(rest) if action == "run" else _table(rest)


def _run(words: list[str]) -> int:
    from robot_rl.study.run import run_study

    config = parse(StudyRunConfig, words, "study run")
    summary = run_study(
        read_study(config.file), minutes=config.minutes, budget=config.budget, workers=config.workers
    )
    say(f"{summary.finished} of {summary.total} cells are finished")
    for name, log in summary.failed:
        say(("failed", "red"), f" {name}: {log}")
    if summary.complete:
        say(f"next: robot-rl study table {config.file}")
    return 1 if summary.failed else 0


def _table(words: list[str]) -> int:
    from robot_rl.study.table import write_table

    config = parse(StudyTableConfig, words, "study table")
    for path in write_table(read_study(config.file)):
        say(str(path))
    return 0
