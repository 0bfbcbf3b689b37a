"""Template: a corrector of your own. Copy this file into your package; nothing in the library needs an edit.

Wrap it, save it, and measure it against the bare policy on the same seeds:

    refiner = robot_rl.Refiner(correct=MyCorrector(...), base_hash=policy.hash())
    robot_rl.save_refiner("outputs/mine", refiner)

    robot-rl evaluate --policy outputs/base --refiner outputs/mine --task peg-insert

This one steers away from what pushes: it adds a bounded linear function of one observation. The residual
network (robot_rl/correct/residual.py) has the same shape, with exploration and a learner beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from robot_rl.correct.corrector import Correction, Corrector, CorrectorInput
from robot_rl.correct.history import require_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike
    from torch import Tensor


class LinearCorrector(Corrector):
    """Adds scale * tanh(W o) to the base action, o being one observation.

    Args:
        key: Observation that is read, in SI units.
        weights: W, (A, D), per unit of that observation; zeros change nothing.
        scale: Greatest correction per action dimension, (A,), robot units; 0 leaves a dimension alone,
            which is what a gripper wants.
    """

    def __init__(self, key: str, weights: ArrayLike, scale: ArrayLike) -> None:
        # 1. Copy what you are given, and refuse what cannot fit before the robot moves.
        self.key = key
        self.weights = np.array(weights, np.float64)
        self.scale = np.array(scale, np.float64)
        if self.weights.ndim != 2 or self.scale.shape != self.weights.shape[:1]:
            raise ValueError(
                f"weights {self.weights.shape} and scale {self.scale.shape} do not belong together; "
                "give (A, D) and (A,)."
            )
        # 2. Reading the past? Name the keys and how many steps; the loop keeps them for each row, and
        #    `correct` finds them in `request.history`. Keep nothing else between steps: rows share it.
        self.history_keys = ()
        self.history_length = 0

    def correct(self, request: CorrectorInput, gain: float = 1.0) -> Correction:
        """Correct the base actions of one step; see `Corrector.correct`."""
        # 3. A missing sensor is an error, never zeros.
        require_keys(request.observation, [self.key])
        # 4. Rows are independent: no mean over B, no randomness but `request.generators[row]`, and that only
        #    when `request.deterministic` is false.
        seen = np.asarray(request.observation[self.key], np.float64)
        seen = seen.reshape(len(seen), -1)
        share = np.tanh((self.weights * seen[:, None, :]).sum(-1))
        # 5. Add in robot units, and let gain and scale multiply the correction alone: then an untrained
        #    corrector (share 0) and a gain of 0 return the base action to the last bit.
        return Correction(request.base_action + gain * self.scale * share, info={"residual": share})

    # 6. With these three methods robot_rl.save_refiner and load_refiner keep it: JSON for what it is, tensors
    #    for what it learned. No pickles.

    def payload(self) -> dict[str, Any]:
        """Return everything but the tensors, JSON types only."""
        return {"key": self.key}

    def tensors(self) -> dict[str, Tensor]:
        """Return what was learned or measured, by name."""
        return {"weights": torch.from_numpy(self.weights), "scale": torch.from_numpy(self.scale)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a saved corrector."""
        return cls(payload["key"], tensors["weights"].numpy(force=True), tensors["scale"].numpy(force=True))
