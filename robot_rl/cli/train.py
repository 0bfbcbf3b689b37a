"""``robot-rl train``: a base policy by behaviour cloning."""

import json
from pathlib import Path

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.train import TrainConfig, train


def run(words: list[str]) -> int:
    """Train and say where the policy is."""
    config = parse(TrainConfig, words, "train")
    folder = train(config)
    say(f"policy in {folder}\nnext: robot-rl evaluate --policy {folder} --task {_task(config.data)}")
    return 0


def _task(data: Path) -> str:
    """The task of a folder of ``robot-rl collect``; a word to replace where it is not known."""
    if not (data / "config.json").is_file():
        return "TASK"
    config = json.loads((data / "config.json").read_text()).get("config") or {}
    return str(config.get("task", "TASK"))
