"""``robot-rl refine METHOD``: refine a frozen policy."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl import methods
from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse, split_word
from robot_rl.refine_check import concern

if TYPE_CHECKING:
    from robot_rl.method_config import MethodConfig


def run(words: list[str]) -> int:
    """Refine and say where the refiner is."""
    known = {name: method.summary for name, method in methods.known().items()}
    if words and ":" in words[0]:  # one of the caller's own
        known[words[0]] = methods.find(words[0]).summary
    name, rest = split_word(words, "refine", "method", known)
    method = methods.find(name)
    config = parse(method.config_class(), rest, f"refine {name}")
    folder = method(config)
    say(
        f"refined policy in {folder}\n"
        f"next: robot-rl evaluate --policy {config.policy} --refiner {folder} --task {config.task}"
    )
    if warning := _concern(config, folder):
        say(("warning", "yellow"), f" {warning}")
    return 0


def _concern(config: "MethodConfig", folder: Path) -> str | None:
    from robot_rl.refine import RefineConfig

    if not isinstance(config, RefineConfig):
        return None
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = json.loads((folder / "result.json").read_text("utf-8"))["env_steps"]
    return concern(rows, rows=config.rows, warmup_steps=config.warmup_steps, env_steps=steps)
