"""``robot-rl demo``: the whole job on peg insertion."""

from robot_rl.cli.parsing import parse
from robot_rl.demo import DemoConfig, run_demo


def run(words: list[str]) -> int:
    """Run the demo."""
    run_demo(parse(DemoConfig, words, "demo"))
    return 0
