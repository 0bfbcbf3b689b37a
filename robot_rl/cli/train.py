"""``robot-rl train``: a base policy by behaviour cloning."""

from robot_rl.cli.parsing import parse
from robot_rl.train import TrainConfig, train


def run(words: list[str]) -> int:
    """Train."""
    train(parse(TrainConfig, words, "train"))
    return 0
