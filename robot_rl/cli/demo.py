"""``robot-rl demo``: the whole job on peg insertion."""

import json

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.demo import DemoConfig, run_demo


def run(words: list[str]) -> int:
    """Run the demo and say what came of it."""
    page = run_demo(parse(DemoConfig, words, "demo"))
    result = json.loads((page.parent / "result.json").read_text(encoding="utf-8"))
    base, refined = (result[arm]["success_rate"] for arm in ("base", "refined"))
    say(
        f"success on {len(result['base']['episodes'])} held-out seeds: {base:.1%} before, ",
        (f"{refined:.1%}", "bold"),
        f" after {result['env_steps']:,} environment steps of refinement\nreport: {page}",
    )
    return 0
