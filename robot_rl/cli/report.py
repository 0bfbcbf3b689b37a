"""``robot-rl report``: one self-contained page about a run."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.progress import stage


@dataclass(frozen=True)
class ReportConfig:
    """Write one self-contained HTML page about a finished run."""

    run: tyro.conf.Positional[Path]
    """folder of the run"""
    out: Path | None = None
    """the page; report.html in the run by default"""
    video: bool = True
    """render a video of one seed before and after"""


def run(words: list[str]) -> int:
    """Write the page."""
    config = parse(ReportConfig, words, "report")
    from robot_rl.report.build import write_report

    with stage("Writing the report"):
        page = write_report(config.run, config.out, video=config.video)
    say(f"{page}")
    return 0
