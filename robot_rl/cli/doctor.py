"""``robot-rl doctor``: what works here and what is missing."""

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli.parsing import parse
from robot_rl.doctor import Status, examine, healthy
from robot_rl.progress import track

STYLES = {Status.OK: "green", Status.OPTIONAL: "yellow", Status.MISSING: "bold red"}


@dataclass(frozen=True)
class DoctorConfig:
    """Say what works on this machine, what is missing and how to get it.

    The exit code is 0 when the main job (robot-rl demo) can run, else 1.
    """


def run(words: list[str]) -> int:
    """Print the table; 1 when something the main job needs is missing."""
    parse(DoctorConfig, words, "doctor")
    findings = list(track(examine(), "Looking around"))
    table = Table(box=None, pad_edge=False)
    for column in ("what", "", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        style = STYLES[finding.status]
        table.add_row(
            finding.what, f"[{style}]{finding.status}[/]", escape(finding.detail), escape(finding.remedy)
        )
    console = Console()
    console.print(table)
    fine = healthy(findings)
    console.print(
        "\nThe main job can run: robot-rl demo." if fine else "\nThe main job cannot run yet, see 'missing'."
    )
    return 0 if fine else 1
