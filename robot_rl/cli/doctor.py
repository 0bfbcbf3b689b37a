"""``robot-rl doctor``: what works here and what is missing, or whether a policy fits a robot."""

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.doctor import Finding, Status, examine, healthy
from robot_rl.policy_doctor.questions import PolicyQuestions
from robot_rl.progress import track

STYLES = {
    Status.OK: "green",
    Status.OPTIONAL: "yellow",
    Status.MISSING: "bold red",
    Status.DIFFERS: "bold red",
}


@dataclass(frozen=True)
class DoctorConfig(PolicyQuestions):
    """Say what works on this machine, what is missing and how to get it.

    With --policy: say whether a policy fits a robot or task and recordings, how fast it is, and what can be
    done with it. The exit code is 0 when the main job (robot-rl demo) can run, or the policy fits, else 1.
    """


def run(words: list[str]) -> int:
    """Print the table; 1 when something the main job needs is missing, or the policy does not fit."""
    config = parse(DoctorConfig, words, "doctor")
    if config.policy is not None:
        from robot_rl.policy_doctor.examine import examine_policy, fits

        findings = list(track(examine_policy(config), "Examining the policy"))
        _show(findings)
        fine = fits(findings)
        say("\nThe policy fits." if fine else "\nThe policy does not fit yet, see 'differs'.")
        return 0 if fine else 1
    findings = list(track(examine(), "Looking around"))
    _show(findings)
    fine = healthy(findings)
    say("\nThe main job can run: robot-rl demo." if fine else "\nThe main job cannot run yet, see 'missing'.")
    return 0 if fine else 1


def _show(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("what", "", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        style = STYLES[finding.status]
        table.add_row(
            finding.what, f"[{style}]{finding.status}[/]", escape(finding.detail), escape(finding.remedy)
        )
    Console().print(table)
