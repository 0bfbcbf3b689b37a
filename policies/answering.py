"""Policies that answer with more than a chunk, because a refiner acts within them, as behind a server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor

from policies.policy import Policy

if TYPE_CHECKING:
    from policies.request import ChunkRequest, Condition


@dataclass(frozen=True)
class Answer:
    """Chunks and how they came about.

    Attributes:
        chunk: (B, H, A), robot units.
        noise: (B, *spec.noise_shape) that they were denoised from; None where there is none.
        candidates: (B, N, H, A) that a selector chose from; None without one.
        index: (B,) which it chose.
        info: what hooks said of the chunks, each (B, ...).
    """

    chunk: Float[Tensor, "B H A"]
    noise: Float[Tensor, "B H Z"] | None = None
    candidates: Float[Tensor, "B N H A"] | None = None
    index: Int[Tensor, " B"] | None = None
    info: Mapping[str, Tensor] = field(default_factory=dict)


class AnsweringPolicy(Policy):
    """A policy with parts of a refiner within."""

    @abstractmethod
    def answer(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
        *,
        deterministic: bool = True,
        gain: float = 1.0,
    ) -> Answer:
        """Return chunks and how they came about; see `Policy.chunk`.

        Args:
            request: see `Policy.chunk`.
            noise: what was drawn; a noise policy within may choose another.
            condition: see `Policy.chunk`.
            deterministic: whether a noise policy within acts without exploration.
            gain: share of what the parts within change, 0 to 1; 0 leaves the base alone.
        """

    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return the chunks alone; see `Policy.chunk`."""
        return self.answer(request, noise, condition).chunk
