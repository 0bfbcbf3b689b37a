"""Batches from two sorts of data: demonstrations, and rollouts that are imitated as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from robot_rl.train.demonstrations import read_demonstrations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jaxtyping import Int
    from torch import Tensor

    from data.windows import Trajectory
    from robot_rl.train.demonstrations import Demonstrations, Selection


_ACTING = ("demo", "human", "policy")
"""Sources of steps in which somebody acted."""


class RowMixture:
    """Draws windows so that a fixed number of each batch comes from the added trajectories.

    Args:
        trajectory: (N,) number of the trajectory of each window.
        added: number of the first added trajectory; those from it on are added ones.
        share: of a batch that is drawn from the added ones; None: as many as there are.
    """

    def __init__(self, trajectory: Int[Tensor, " N"], added: int, share: float | None) -> None:
        is_added = trajectory >= added
        self._parts = tuple(mask.nonzero().flatten() for mask in (~is_added, is_added))
        self._count = len(trajectory)
        self.share = share if all(len(part) for part in self._parts) else None

    def draw(self, count: int, generator: torch.Generator) -> Int[Tensor, " B"]:
        """Return the rows of a batch, drawn with replacement.

        Args:
            count: B.
            generator: on the CPU.
        """
        if self.share is None:
            return torch.randint(self._count, (count,), generator=generator)
        added = round(self.share * count)
        chosen = [
            part[torch.randint(len(part), (size,), generator=generator)]
            for part, size in zip(self._parts, (count - added, added), strict=True)
        ]
        return torch.cat(chosen)


def read_added(
    paths: Sequence[Path], demonstrations: Demonstrations, selection: Selection
) -> list[Trajectory]:
    """Read successful rollouts to imitate beside demonstrations.

    Args:
        paths: of episode stores.
        demonstrations: what they are added to.
        selection: what of the demonstrations is imitated; of rollouts it is all steps of the successes.

    Raises:
        ValueError: if a store holds other observations or actions than the demonstrations, or no success.
    """
    found: list[Trajectory] = []
    for path in paths:
        added = read_demonstrations(path, replace(selection, sources=_ACTING, outcomes=("success",)))
        shapes = {key: feature.shape for key, feature in added.features.items()}
        wanted = {key: feature.shape for key, feature in demonstrations.features.items()}
        if shapes != wanted or added.action_spec.names != demonstrations.action_spec.names:
            raise ValueError(
                f"{path} holds {shapes} and actions {added.action_spec.names}, but {demonstrations.source} "
                f"{wanted} and {demonstrations.action_spec.names}: add rollouts of the same robot"
            )
        found += added.trajectories
    return found
