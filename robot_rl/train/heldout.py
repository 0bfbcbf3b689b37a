"""How far a policy's chunks lie from held-out actions, per joint, beside holding the last action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from policies.noise import draw_noise
from policies.request import ChunkRequest

if TYPE_CHECKING:
    from policies.policy import ChunkPolicy
    from robot_rl.train.windows import TensorWindows

_BATCH = 256


@dataclass(frozen=True, eq=False)
class HeldOutError:
    """Mean absolute errors over held-out windows.

    Attributes:
        names: A names of the action dimensions.
        units: A units.
        policy: (K, A) error of the policy's chunk, position by position from the newest observation on.
        hold: (K, A) error of repeating the last action that was executed before the chunk.
        windows: number of windows averaged over.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    policy: NDArray[np.float64]
    hold: NDArray[np.float64]
    windows: int

    def to_json(self) -> dict[str, Any]:
        """Describe the errors with JSON types; ``ratio`` below 1 means better than holding."""
        policy, hold = self.policy.mean(0), self.hold.mean(0)
        joints = [
            {"name": n, "unit": u, "policy": float(p), "hold_last": float(h), "ratio": _ratio(p, h)}
            for n, u, p, h in zip(self.names, self.units, policy, hold, strict=True)
        ]
        ratios = [ratio for p, h in zip(policy, hold, strict=True) if (ratio := _ratio(p, h)) is not None]
        return {
            "metric": "mean absolute error over the chunk",
            "windows": self.windows,
            "joints": joints,
            "joints_better": sum(ratio < 1 for ratio in ratios),
            "mean_ratio": float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-9))))) if ratios else None,
            "by_position": {"policy": self.policy.tolist(), "hold_last": self.hold.tolist()},
        }


def _ratio(policy: float, hold: float) -> float | None:
    # A joint that never moves is held without any error; there is nothing to be better at.
    return float(policy / hold) if hold > 1e-9 else None


@torch.no_grad()
def held_out_error(policy: ChunkPolicy, windows: TensorWindows, *, seed: int = 0) -> HeldOutError:
    """Compare one chunk per window, drawn as in execution, with what the demonstrator did.

    Args:
        policy: to judge.
        windows: held out, in the policy's shape; those at the start of a trajectory are left out, as no
            action before them could be held.
        seed: of the noise.

    Raises:
        ValueError: if no window is left.
    """
    spec = policy.spec
    rows = (windows.step > 0).nonzero().flatten()
    if not len(rows):
        raise ValueError("no held-out window has an action before it; hold out more")
    generator = np.random.default_rng(seed)
    sums = torch.zeros(2, spec.horizon - spec.first_action, spec.action_size, dtype=torch.float64)
    counts = torch.zeros(spec.horizon - spec.first_action, 1, dtype=torch.float64)
    for part in torch.split(rows, _BATCH):
        batch = windows.batch(part, policy.device)
        noise = draw_noise(spec, [generator] * len(part), policy.device)
        chunk = policy.chunk(ChunkRequest(batch.observation), noise=noise)
        last = windows.previous_action(part)[:, None].expand(chunk.shape)
        mask = windows.mask[part][:, spec.first_action :, None]
        for index, guess in enumerate((chunk.cpu(), last)):
            error = (guess - batch.action.cpu()).abs()[:, spec.first_action :]
            sums[index] += (error * mask).sum(0)
        counts += mask.sum(0)
    means = (sums / counts.clamp(min=1)).numpy()
    names, units = spec.action_spec.names, spec.action_spec.units
    return HeldOutError(names, units, means[0], means[1], len(rows))
