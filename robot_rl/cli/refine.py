"""``robot-rl refine METHOD``: refine a frozen policy."""

import json

from robot_rl import methods
from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse, split_word


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
    result = folder / "result.json"
    if result.exists() and (warning := json.loads(result.read_text("utf-8")).get("concern")):
        say(("warning", "yellow"), f" {warning}")
    return 0
