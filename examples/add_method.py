"""Add a refinement method of your own, so that `robot-rl refine` and studies run it as they run ours.

    cd examples
    robot-rl refine add_method:METHOD --help
    python add_method.py

The task and the autopilot are those of refine_my_task.py, the corrector is that of add_refiner.py. The method
tries out some shares on training seeds and keeps the best. A package registers METHOD for good by an entry
point, and users then type its name:

    [project.entry-points."robot_rl.methods"]
    steer-harder = "add_method:METHOD"

A method that learns online from waves of episodes brings a recipe instead and gets the rest (a learner
process, checkpoints, resume): see robot_rl/recipe.py, and robot_rl/noise/dsrl.py for one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from add_refiner import SteerHarder, outcomes
from refine_my_task import Autopilot

import robot_rl
from robot_rl.seeds import TRAINING_SEEDS


@dataclass(frozen=True)
class SteerHarderConfig(robot_rl.MethodConfig):
    """Steer harder by a share that is tried out."""

    task: str = "refine_my_task:Dock"
    """Name of the task."""
    shares: tuple[float, ...] = (0.2, 0.4, 0.8)
    """What is tried besides nothing."""
    episodes: int = 50
    """Episodes per share."""

    def __post_init__(self) -> None:
        """Check what is this method's own; the rest was checked by then."""
        super().__post_init__()
        self.check_range("episodes", 1, 100_000)


def steer_harder(config: SteerHarderConfig) -> Path:
    """Try the shares on training seeds and save the best; what every method does at the end."""
    policy = robot_rl.load_base(config, METHOD)  # refuses a base that lacks what METHOD.needs
    first = TRAINING_SEEDS + 1_000_000 * config.seed  # seeds that no evaluation takes
    with robot_rl.RunDirectory.create(config.out, config, kind="refine", resume=config.resume) as run:
        tried = {}
        for share in (0.0, *config.shares):
            refiner = robot_rl.Refiner(correct=SteerHarder(share), base_hash=policy.hash())
            tried[share] = sum(outcomes(refiner, first, config.episodes))
            run.log(len(tried), {"share": share, "success": tried[share] / config.episodes})
        best = max(tried, key=lambda share: tried[share])
        refiner = robot_rl.Refiner(correct=SteerHarder(best), base_hash=policy.hash())
        robot_rl.save_refiner(run.path / "refiner", refiner, {"task": config.task})
        run.write_json("result.json", {"share": best, "concern": None if best else "no share did better"})
    return config.out


METHOD = robot_rl.Method(
    name="steer-harder",
    summary="add a share of the remaining way, tried out on training seeds",
    config=SteerHarderConfig,
    run=steer_harder,
)


def main(words: list[str] | None = None) -> None:
    """Save the autopilot and refine it, as the command line would."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/steered"))
    parser.add_argument("--episodes", type=int, default=50)
    args = parser.parse_args(words)

    robot_rl.save_policy(Autopilot(), args.out / "policy")
    config = SteerHarderConfig(args.out / "policy", args.out / "refined", episodes=args.episodes)
    loaded = robot_rl.load_refiner(METHOD(config))
    before, after = (sum(outcomes(refiner, 1000, args.episodes)) for refiner in (None, loaded))
    print(f"{before} of {args.episodes} before, {after} after")


if __name__ == "__main__":
    from add_method import main as start  # under its import name, so that what is saved is found again

    start()
