"""``robot-rl export``: a refined policy as a folder that LeRobot's programs run."""

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.export import ExportConfig, export


def run(words: list[str]) -> int:
    """Write the folder and say how to run it."""
    config = parse(ExportConfig, words, "export")
    folder = export(config)
    say(f"{folder}\nrun it with: lerobot-eval --policy.path={folder} --policy.seed=1000 --env.type=...")
    return 0
