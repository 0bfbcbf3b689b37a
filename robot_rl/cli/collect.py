"""``robot-rl collect``: demonstrations of a scripted expert."""

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.collect import CollectConfig, collect

ESTIMATE = "observation.environment_state"


def run(words: list[str]) -> int:
    """Collect and say where the episodes are."""
    config = parse(CollectConfig, words, "collect")
    result = collect(config)
    inputs = f" --network.inputs {ESTIMATE}" if config.task == "peg-insert" else ""  # README.md says why
    say(
        f"{result.kept} episodes in {result.store} ({result.failed} of {result.attempts} attempts failed)\n"
        f"next: robot-rl train --data {config.out} --out outputs/base{inputs}"
    )
    return 0
