"""Add a refiner of your own, and measure it against the bare policy on the same seeds.

    python examples/add_refiner.py

The task and the autopilot are those of refine_my_task.py. This corrector learns nothing by gradients: it
steers harder by one number, which is tried out on training seeds. robot_rl/correct/template_corrector.py
explains each line of a corrector.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from refine_my_task import BERTH, POSITION, Autopilot, Dock

import robot_rl

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = 10


class SteerHarder(robot_rl.Corrector):
    """Adds a share of the remaining way, within a bound in metres. A share of 0 changes nothing at all."""

    def __init__(self, share: float = 0.0, bound: float = 0.01) -> None:
        self.share, self.bound = share, bound

    def correct(self, request: robot_rl.CorrectorInput, gain: float = 1.0) -> robot_rl.Correction:
        """Correct one step of B rows; the sum is in robot units."""
        way = request.observation[BERTH] - request.observation[POSITION]
        correction = gain * np.clip(self.share * way, -self.bound, self.bound)
        return robot_rl.Correction(request.base_action + correction, info={"residual": correction})

    def payload(self) -> dict[str, Any]:
        """What is saved, JSON types only."""
        return {"bound": self.bound}

    def tensors(self) -> dict[str, torch.Tensor]:
        """What is saved as tensors: all that was learned."""
        return {"share": torch.tensor(self.share)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        """Rebuild what was saved."""
        return cls(float(tensors["share"]), payload["bound"])


def outcomes(refiner: robot_rl.Refiner | None, first_seed: int, episodes: int) -> list[bool]:
    """Success per seed, in waves of ROWS episodes side by side."""
    envs, policy = [Dock() for _ in range(ROWS)], Autopilot()
    waves = [range(seed, seed + ROWS) for seed in range(first_seed, first_seed + episodes, ROWS)]
    return [episode.success for wave in waves for episode in robot_rl.run_wave(envs, wave, policy, refiner)]


def main(words: list[str] | None = None) -> None:
    """Choose the share on training seeds, then measure on others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/steer-harder"))
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args(words)

    base_hash = Autopilot().hash()
    tried = {}
    for share in (0.0, 0.2, 0.4, 0.8):
        refiner = robot_rl.Refiner(correct=SteerHarder(share), base_hash=base_hash)
        tried[share] = sum(outcomes(refiner, first_seed=0, episodes=args.episodes))
    best = max(tried, key=lambda share: tried[share])
    robot_rl.save_refiner(args.out, robot_rl.Refiner(correct=SteerHarder(best), base_hash=base_hash))

    loaded = robot_rl.load_refiner(args.out)  # what `robot-rl evaluate --refiner` does
    before = outcomes(None, first_seed=1000, episodes=args.episodes)
    after = outcomes(loaded, first_seed=1000, episodes=args.episodes)
    gain = robot_rl.paired_difference(before, after)
    print(f"share {best}: {sum(before)} of {len(before)} before, {sum(after)} after")
    print(f"difference {gain.value:+.0%}, 95 % interval {gain.interval[0]:+.0%} to {gain.interval[1]:+.0%}")


if __name__ == "__main__":
    from add_refiner import main as start  # under its import name, so that what is saved is found again

    start()
