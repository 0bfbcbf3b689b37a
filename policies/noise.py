"""Initial noise, one generator per row, so that a row's chunk does not depend on who shares its batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.policy import PolicySpec

Generator = torch.Generator | np.random.Generator


def draw_noise(
    spec: PolicySpec, generators: Sequence[Generator], device: torch.device | str = "cpu"
) -> Float[Tensor, "B H Z"]:
    """Draw standard normal noise, row i from generator i.

    Drawn on the CPU in float32 whatever the device, so that a seed means the same everywhere.

    Args:
        spec: whose `noise_shape` is drawn per row.
        generators: one per row, of NumPy or torch (on the CPU); each advances by one draw.
        device: of the result.
    """
    rows = [_draw(generator, spec.noise_shape) for generator in generators]
    return torch.stack(rows).to(device)


def _draw(generator: Generator, shape: tuple[int, ...]) -> Tensor:
    if isinstance(generator, torch.Generator):
        return torch.randn(shape, generator=generator)
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


def check_noise(spec: PolicySpec, noise: Tensor, rows: int) -> None:
    """Refuse noise of the wrong shape.

    Args:
        spec: of the policy to be sampled.
        noise: candidate.
        rows: B expected.

    Raises:
        ValueError: naming both shapes.
    """
    expected = (rows, *spec.noise_shape)
    if tuple(noise.shape) != expected:
        raise ValueError(f"noise has shape {tuple(noise.shape)}; policy {spec.name!r} expects {expected}")
