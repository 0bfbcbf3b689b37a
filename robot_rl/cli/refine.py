"""``robot-rl refine METHOD``: refine a frozen policy."""

import json

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse, split_word
from robot_rl.refine_check import concern

METHODS = {"residual": "learn a bounded correction of each action from success and failure"}


def run(words: list[str]) -> int:
    """Refine and say where the refiner is."""
    method, rest = split_word(words, "refine", "method", METHODS)
    from robot_rl.refine import RefineConfig, refine  # torch, after the method was checked

    config = parse(RefineConfig, rest, f"refine {method}")
    folder = refine(config)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = json.loads((folder / "result.json").read_text("utf-8"))["env_steps"]
    warning = concern(rows, rows=config.rows, warmup_steps=config.warmup_steps, env_steps=steps)
    say(
        f"refined policy in {folder}\n"
        f"next: robot-rl evaluate --policy {config.policy} --refiner {folder} --task {config.task}"
    )
    if warning:
        say(("warning", "yellow"), f" {warning}")
    return 0
