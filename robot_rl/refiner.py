"""What is added to a frozen policy: ordered parts, the base they were made for, and a gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policies.hooks import DenoiseHook  # noqa: TC004 - the loop imports this module without torch
    from robot_rl.correct.corrector import Corrector  # noqa: TC004 - as above
    from robot_rl.noise.policy import NoisePolicy  # noqa: TC004 - as above
    from robot_rl.select.selector import Selector  # noqa: TC004 - as above
    from robot_rl.student import Student  # noqa: TC004 - as above


@dataclass(frozen=True)
class Refiner:
    """Parts in the order they act, each optional.

    Attributes:
        correct: Corrects each control step's action.
        noise: Chooses the initial noise.
        hooks: Guide the denoising, in order.
        select: Chooses among candidates.
        student: A policy trained from the base that proposes in its place; the other parts act on it.
        base_hash: Hash of the policy it was made for; empty for any.
        version: Hash of the parts; recorded with every episode.
        facts: Further facts of the manifest.
    """

    correct: Corrector | None = None
    noise: NoisePolicy | None = None
    hooks: Sequence[DenoiseHook] = ()
    select: Selector | None = None
    student: Student | None = None
    base_hash: str = ""
    version: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def check_base(self, found: str) -> None:
        """Refuse a policy that this refiner was not made for.

        Args:
            found: Hash of the policy.

        Raises:
            ValueError: The hashes differ; names both.
        """
        if self.base_hash and found != self.base_hash:
            raise ValueError(
                f"This refiner was made for the base {self.base_hash[:12]}, but the policy is {found[:12]}; "
                "load the policy it was made for, or refine this one."
            )
