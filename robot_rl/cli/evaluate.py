"""``robot-rl evaluate``: success rates on held-out seeds."""

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.evaluate import EvaluateConfig, evaluate


def run(words: list[str]) -> int:
    """Evaluate and print one line, and one per task where there are several."""
    config = parse(EvaluateConfig, words, "evaluate")
    result = evaluate(config)
    low, high = result.interval
    say(
        f"{config.task}: ",
        (f"{result.success_rate:.1%}", "bold"),
        f" of {len(result.episodes)} episodes succeeded "
        f"(95 % interval {low:.1%} to {high:.1%}), seeds {config.seeds.start} to {config.seeds.stop - 1}, "
        f"{result.wall_seconds:.1f} s with {result.workers} workers",
    )
    if len(result.by_text) > 1:
        for text, rate in result.by_text.items():
            low, high = rate.interval
            say(
                f"  {text}: {rate.success_rate:.1%} of {rate.episodes} episodes "
                f"(95 % interval {low:.1%} to {high:.1%})"
            )
    if not config.held_out:
        say("these seeds were perhaps trained on: this is no success rate on held-out seeds")
    return 0
