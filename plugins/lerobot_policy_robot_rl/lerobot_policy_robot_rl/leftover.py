"""What LeRobot's real-time loop says of the chunk in execution, as `robot_rl` plans with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robot_rl.plans import Previous

if TYPE_CHECKING:
    from torch import Tensor

    from policies.policy import PolicySpec


def as_previous(leftover: Tensor | None, spec: PolicySpec, rows: int) -> Previous | None:
    """Return the chunk in execution.

    LeRobot 0.6.1 fills a short rest up with zeros, which would pull towards the origin. Actions at the end
    that are zero to the last bit in every dimension are taken for that and dropped.

    Args:
        leftover: (n, A) or (B, n, A), the actions that were not executed when the observation was taken; None
            or nothing before the first chunk.
        spec: of the base.
        rows: B.

    Raises:
        ValueError: the actions have another width.
    """
    if leftover is None:
        return None
    left = np.array(leftover.numpy(force=True), np.float32)
    if left.ndim not in {2, 3} or left.shape[-1] != spec.action_size:
        raise ValueError(
            f"The rest of the last chunk has shape {left.shape}; (n, {spec.action_size}) is needed."
        )
    left = np.broadcast_to(left, (rows, *left.shape[-2:]))
    real = np.flatnonzero(left.any(axis=(0, 2)))
    left = left[:, : real[-1] + 1 if real.size else 0][:, : spec.horizon - spec.first_action]
    chunk = np.zeros((rows, spec.horizon, spec.action_size), np.float32)
    count = left.shape[1]
    # Put at the chunk's very end, so that nothing follows it.
    chunk[:, spec.horizon - count :] = left
    return Previous(chunk, np.full(rows, spec.horizon - spec.first_action - count))
