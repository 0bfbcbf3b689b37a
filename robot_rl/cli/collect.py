"""``robot-rl collect``: demonstrations of a scripted expert."""

from rich.console import Console

from robot_rl.cli.parsing import parse
from robot_rl.collect import CollectConfig, collect


def run(words: list[str]) -> int:
    """Collect and say where the episodes are."""
    config = parse(CollectConfig, words, "collect")
    result = collect(config)
    Console().print(
        f"{result.kept} episodes in {result.store} ({result.failed} of {result.attempts} attempts failed)\n"
        f"next: robot-rl train --data {config.out} --out outputs/base",
        highlight=False,
    )
    return 0
