"""What is added to a frozen policy: ordered parts, the base they were made for, and a gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from policies.hooks import DenoiseHook  # noqa: TC004 - the loop imports this module without torch
    from policies.policy import Policy
    from policies.request import ChunkRequest
    from robot_rl.correct.corrector import Corrector  # noqa: TC004 - as above


class NoisePolicy:
    """Chooses the initial noise (DSRL, arXiv 2506.15799)."""

    def propose(self, request: ChunkRequest, noise: Tensor, *, deterministic: bool) -> Tensor:
        """Return the noise to denoise from, (B, H, Z), given the noise the loop drew."""
        raise NotImplementedError


class Selector:
    """Chooses among candidate chunks (best-of-N, EXPO arXiv 2507.07986)."""

    def propose(self, request: ChunkRequest, policy: Policy, noise: Tensor) -> Tensor:
        """Return candidates (B, N, H, A) in robot units; the first one is the base's own."""
        raise NotImplementedError

    def select(self, candidates: Tensor, request: ChunkRequest) -> Tensor:
        """Return the chosen index per row, (B,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Refiner:
    """Parts in the order they act, each optional.

    Attributes:
        correct: Corrects each control step's action.
        noise: Chooses the initial noise.
        hooks: Guide the denoising, in order.
        select: Chooses among candidates.
        base_hash: Hash of the policy it was made for; empty for any.
        version: Hash of the parts; recorded with every episode.
        facts: Further facts of the manifest.
    """

    correct: Corrector | None = None
    noise: NoisePolicy | None = None
    hooks: Sequence[DenoiseHook] = ()
    select: Selector | None = None
    base_hash: str = ""
    version: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def check_base(self, policy: Policy) -> None:
        """Refuse a policy that this refiner was not made for.

        Raises:
            ValueError: The hashes differ; names both.
        """
        found = policy.hash()
        if self.base_hash and found != self.base_hash:
            raise ValueError(
                f"This refiner was made for the base {self.base_hash[:12]}, but the policy is {found[:12]}; "
                "load the policy it was made for, or refine this one."
            )
