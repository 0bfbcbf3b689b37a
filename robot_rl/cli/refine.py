"""``robot-rl refine METHOD``: refine a frozen policy."""

from rich.console import Console

from robot_rl.cli.parsing import parse, split_word, take_flag
from robot_rl.refine import RefineConfig, refine

METHODS = ("residual",)


def run(words: list[str]) -> int:
    """Refine and say where the refiner is."""
    method, rest = split_word(words, "refine", "method", METHODS)
    resume, rest = take_flag(rest, "--resume")
    config = parse(RefineConfig, rest, f"refine {method}")
    folder = refine(config, resume=resume)
    Console().print(
        f"refined policy in {folder}\n"
        f"next: robot-rl evaluate --policy {config.policy} --refiner {folder} --task {config.task}",
        highlight=False,
    )
    return 0
