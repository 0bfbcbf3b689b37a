"""Whether a finished refinement looks worse than its base or was too short, from the success of its waves."""

from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.statistics import wilson_interval

LAST = 4
"""Waves at the end that are looked at together."""


def concern(
    waves: Sequence[Mapping[str, Any]], *, rows: int, warmup_steps: int, env_steps: int, effect: str
) -> str | None:
    """One sentence of warning; None where there is nothing to warn of.

    It changes nothing: collection explores, so that only an evaluation tells how good the refiner is.

    Args:
        waves: what the run logged of each wave: ``step``, ``success`` (0 to 1) and the effect.
        rows: episodes of a wave.
        warmup_steps: environment steps before learning started.
        env_steps: environment steps taken.
        effect: name of a measure that is 0 in the waves of the undisturbed base.
    """
    if env_steps < 2 * warmup_steps:
        return (
            f"this refinement was short: it learned during {max(env_steps - warmup_steps, 0)} of {env_steps} "
            "steps, the rest was warm-up; it can be worse than the base: evaluate both, or allow more steps"
        )
    known = [wave for wave in waves if "success" in wave and effect in wave]
    base = [wave["success"] for wave in known if not wave[effect]]
    last = [wave["success"] for wave in known if wave["step"] > warmup_steps and wave[effect]][-LAST:]
    if not base or not last:
        return None
    before, after = sum(base) / len(base), sum(last) / len(last)
    if wilson_interval(round(after * rows * len(last)), rows * len(last))[1] >= before:
        return None
    return (
        f"this refinement looks worse than its base: {after:.0%} of the last {rows * len(last)} episodes "
        f"succeeded, {before:.0%} of the base's first {rows * len(base)} did; evaluate both, and give more "
        "--env-steps"
    )
