"""``robot-rl train``: a base policy by behaviour cloning."""

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.train import TrainConfig, train


def run(words: list[str]) -> int:
    """Train and say where the policy is."""
    folder = train(parse(TrainConfig, words, "train"))
    say(f"policy in {folder}\nnext: robot-rl evaluate --policy {folder}")
    return 0
