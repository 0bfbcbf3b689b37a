"""Normalisation of one feature, the same object in training and inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from data.statistics import Scaling


class Normalizer(nn.Module):
    """Maps a feature to about unit range and back: normalised = (value - offset) / scale, per dimension.

    Made without statistics it refuses to work until it is fitted or loaded. A value that is not finite raises
    `ValueError`, so that NaN reaches neither network nor robot.

    Args:
        key: name of the feature, for messages.
        names: one name per dimension, for messages.
    """

    offset: Tensor
    scale: Tensor
    bound: Tensor

    def __init__(self, key: str, names: Sequence[str]) -> None:
        super().__init__()
        self.key = key
        self.names = tuple(names)
        for name in ("offset", "scale", "bound"):
            self.register_buffer(name, torch.full((len(names),), torch.nan))

    @torch.no_grad()
    def fit(self, scaling: Scaling) -> Self:
        """Take over a guarded scaling (`data.statistics.scaling`).

        Args:
            scaling: offset, scale and bound in the feature's shape.

        Raises:
            ValueError: if its width differs.
        """
        for name in ("offset", "scale", "bound"):
            value = torch.as_tensor(getattr(scaling, name), dtype=torch.float32).flatten()
            if len(value) != len(self.names):
                raise ValueError(
                    f"{self.key!r} has {len(self.names)} dimensions, {name} of its statistics {len(value)}"
                )
            getattr(self, name).copy_(value)
        return self

    def normalize(self, value: Float[Tensor, "... D"], *, bounded: bool = False) -> Float[Tensor, "... D"]:
        """Return the normalised value.

        Args:
            value: in the feature's units.
            bounded: clip dimensions that hardly moved in training to their bound, so that a small deviation
                from a constant cannot become a large input. For observations: it does not invert.

        Raises:
            ValueError: if the width is wrong, a value is not finite, or there are no statistics.
        """
        self._check(value)
        normal = (value - self.offset) / self.scale
        return torch.minimum(torch.maximum(normal, -self.bound), self.bound) if bounded else normal

    def denormalize(self, value: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Return the value in its own units; differentiable.

        Raises:
            ValueError: if the width is wrong, a value is not finite, or there are no statistics.
        """
        self._check(value)
        return value * self.scale + self.offset

    def _check(self, value: Tensor) -> None:
        if value.shape[-1] != len(self.names):
            raise ValueError(f"{self.key!r} has width {value.shape[-1]}; expected {len(self.names)}")
        # A sum is finite only if no entry is NaN or infinite: one reduction in the usual case.
        if not bool((value.detach().sum() + self.scale.sum()).isfinite()):
            self._explain(value)

    def _explain(self, value: Tensor) -> None:
        if not bool(self.scale.isfinite().all()):
            raise ValueError(
                f"{self.key!r} has no normalisation statistics; fit the policy to data or load a checkpoint"
            )
        finite = value.detach().reshape(-1, len(self.names)).isfinite().all(dim=0)
        bad = [self.names[index] for index in finite.logical_not().nonzero().flatten().tolist()]
        if bad:
            raise ValueError(f"{self.key!r} is not finite in dimension {', '.join(bad)}")
