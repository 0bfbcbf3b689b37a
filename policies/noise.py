"""Initial noise, one generator per row, so that a row's chunk does not depend on who shares its batch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def step_noise_of(noise: Float[Tensor, "B H Z"]) -> Callable[[int], Float[Tensor, "B H Z"]]:
    """Return the fresh noise of each denoising step, which follows from the initial noise of its row.

    A process that draws noise at every step (DDPM) then gives one chunk per observation and initial noise, as
    every other policy here does, whoever shares the batch. Row i of step k is drawn from a generator that is
    seeded with the SHA-256 of row i's initial noise and k: the draws are independent for all purposes.

    Args:
        noise: initial noise.

    Returns:
        Function of the step's number.
    """
    rows = [row.detach().to("cpu", torch.float32).contiguous().numpy().tobytes() for row in noise]

    def fresh(index: int) -> Tensor:
        drawn = []
        for row in rows:
            digest = hashlib.sha256(row + index.to_bytes(4, "little")).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
            drawn.append(torch.randn(noise.shape[1:], generator=generator))
        return torch.stack(drawn).to(noise)

    return fresh


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
