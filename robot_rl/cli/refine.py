"""``robot-rl refine METHOD``: refine a frozen policy."""

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse, split_word

METHODS = {"residual": "learn a bounded correction of each action from success and failure"}


def run(words: list[str]) -> int:
    """Refine and say where the refiner is."""
    method, rest = split_word(words, "refine", "method", METHODS)
    from robot_rl.refine import RefineConfig, refine  # torch, after the method was checked

    config = parse(RefineConfig, rest, f"refine {method}")
    folder = refine(config)
    say(
        f"refined policy in {folder}\n"
        f"next: robot-rl evaluate --policy {config.policy} --refiner {folder} --task {config.task}"
    )
    return 0
