"""Load what is served: a policy, and those parts of refiners that act where the policy runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robot_rl.parts import compose, load_refiner
from robot_rl.refiner import Refiner
from robot_rl.serve.engine import Engine

if TYPE_CHECKING:
    from policies.policy import Policy
    from robot_rl.serve.config import ServeConfig


def make_engine(config: ServeConfig) -> Engine:
    """Load policy and refiners, and put them together.

    Raises:
        ValueError: a refiner corrects actions, was made for another base, or cannot be read.
        PolicyError: it guides a policy whose denoising is closed.
    """
    policy = _policy(config)
    return Engine(policy, _refiner(config), most_rows=config.rows, most_bytes=config.megabytes * 1_000_000)


def _policy(config: ServeConfig) -> Policy:
    if not config.task:
        from policies.loading import load

        return load(config.policy, config.device)
    import sim
    from robot_rl.base_policy import policy_for
    from sim.task import task_of

    env = sim.make(config.task)
    try:
        return policy_for(config.policy, task_of(env), config.device)
    finally:
        env.close()


def _refiner(config: ServeConfig) -> Refiner:
    """All refiners as one; a corrector needs what the robot feels at each step, not once per chunk."""
    refiners = []
    for folder in config.refiner:
        refiner = load_refiner(folder, device=config.device)
        if refiner.correct is not None:
            raise ValueError(
                f"the refiner in {folder} corrects actions ({type(refiner.correct).__name__}), which happens "
                "at each control step on the robot: leave it out here and give it to the loop there, as with "
                f"robot-rl evaluate --policy ws://HOST:PORT --refiner {folder}"
            )
        refiners.append(refiner)
    return compose(refiners) if refiners else Refiner()
