"""Phases of a task: prototypes of each, how near is near, and in which phase an episode is.

The definitions are those of ReGuide (arXiv 2606.28939); `robot_rl.guide.phase_finding` finds phases in
demonstrations.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robot_rl.task_texts import NO_TEXTS, TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from robot_rl.guide.frames import Frames

logger = logging.getLogger(__name__)

ENOUGH = 0.95
"""Share of the demonstrations that should be counted through to the last phase."""


@dataclass(frozen=True)
class PhaseConfig:
    """How phases are found and left. Percentiles are tuned per task in the paper; these lie in the middle."""

    phases: int = 3
    """number of phases, 5 in the paper; an episode needs more than `switch_decisions` chunks in each"""
    clusters: int = 10
    """clusters per phase"""
    prototypes: int = 50
    """most prototypes per phase"""
    components: int = 128
    """most principal components that are clustered"""
    difference: float = 0.3
    """weight of the difference to the frame before, in the features that are clustered"""
    restarts: int = 20
    """of the clustering, of which the best is taken"""
    temperature: float = 70.0
    """percentile of the frames' distances to their nearest prototype: the softmin's temperature"""
    lower: float = 50.0
    """percentile of a phase's distances above which its rows have drifted and are guided"""
    upper: float = 90.0
    """percentile above which they are given up: a state that far off is not steered"""
    switch: float = 70.0
    """percentile of the next phase's distances below which it is reached"""
    switch_margin: float = 0.2
    """how much nearer the next phase must be than the present one"""
    switch_decisions: int = 1
    """chunks in a row that must say so; 2 in the paper, whose episodes are longer"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("phases", "clusters", "prototypes", "components", "restarts", "switch_decisions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed is 1 or more")
        for name in ("temperature", "lower", "upper", "switch"):
            if not 0 < getattr(self, name) < 100:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, allowed is a percentile above 0 and below 100"
                )
        if self.lower >= self.upper:
            raise ValueError(f"lower is {self.lower} and upper {self.upper}: nothing lies between them")
        if self.difference < 0:
            raise ValueError(f"difference is {self.difference}, allowed is 0 or more")


@dataclass(frozen=True, eq=False)
class PhaseTargets:
    """What guidance needs to know of P phases, those of a second task behind those of the first.

    Attributes:
        prototypes: (P, M, D) scaled latents; rows beyond a phase's own number are unused.
        used: (P, M) which are used.
        temperature: (P,) of the softmin distance.
        lower: (P,) distance from which a row has drifted.
        upper: (P,) distance from which it is given up.
        switch: (P,) distance below which the phase counts as reached.
        tasks: number of tasks, all with as many phases.
    """

    prototypes: Float[Tensor, "P M D"]
    used: Bool[Tensor, "P M"]
    temperature: Float[Tensor, " P"]
    lower: Float[Tensor, " P"]
    upper: Float[Tensor, " P"]
    switch: Float[Tensor, " P"]
    tasks: int = 1

    @property
    def count(self) -> int:
        """Number of phases of one task."""
        return len(self.temperature) // self.tasks

    def distance(self, latent: Float[Tensor, "B D"], phase: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return each row's softmin distance to the prototypes of its phase, at the phase's temperature.

        Args:
            latent: scaled.
            phase: 0 .. P - 1, counted through all tasks.
        """
        return softmin(latent, self.prototypes[phase], self.used[phase], self.temperature[phase])

    def tensors(self) -> dict[str, Tensor]:
        """All but the number of tasks, by name."""
        return {name: getattr(self, name) for name in _TENSORS}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], tasks: int = 1) -> Self:
        """Rebuild what `tensors` gave."""
        return cls(**{name: tensors[name] for name in _TENSORS}, tasks=tasks)

    @classmethod
    def joined(cls, each: Sequence[Self]) -> Self:
        """Put the phases of several tasks, one each, behind each other."""
        most = max(one.prototypes.shape[1] for one in each)

        def whole(name: str) -> Tensor:
            parts = [getattr(one, name) for one in each]
            if name in ("prototypes", "used"):
                parts = [
                    torch.cat([p, p.new_zeros(len(p), most - p.shape[1], *p.shape[2:])], 1) for p in parts
                ]
            return torch.cat(parts)

        return cls(**{name: whole(name) for name in _TENSORS}, tasks=len(each))


_TENSORS = tuple(item.name for item in fields(PhaseTargets) if item.name != "tasks")


def softmin(
    latent: Float[Tensor, "B D"],
    prototypes: Float[Tensor, "B M D"],
    used: Bool[Tensor, "B M"],
    temperature: Float[Tensor, " B"] | float,
) -> Float[Tensor, " B"]:
    """Return -t log mean_m exp(-||z - g_m|| / t): above the nearest distance by at most t log M.

    Deviation from ReGuide, which sums: the sum lies lower by t log M, so that phases of different temperature
    do not compare, and one of high temperature is hardly ever left. Gradients are the same.

    Args:
        latent: z.
        prototypes: the g_m of each row.
        used: which of them count.
        temperature: t; towards 0 the result becomes the nearest distance.
    """
    distance = torch.linalg.vector_norm(latent[:, None] - prototypes, dim=2)
    level = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    weight = torch.where(used, -distance / level, -torch.inf)
    mean = torch.logsumexp(weight, dim=1) - used.sum(dim=1).to(weight.dtype).log()
    found: Tensor = -temperature * mean
    return found


@dataclass(frozen=True, eq=False)
class Progress:
    """Where rows are in their tasks.

    Attributes:
        phase: (B,) present phase, counted through all tasks.
        agreed: (B,) chunks in a row that said the next phase is reached.
    """

    phase: Int[Tensor, " B"]
    agreed: Int[Tensor, " B"]

    @classmethod
    def start(cls, first: Int[Tensor, " B"]) -> Self:
        """Return rows at the beginning, in the first phase of each one's task."""
        return cls(first, torch.zeros_like(first))

    def following(self, targets: PhaseTargets) -> Int[Tensor, " B"]:
        """Return the phase after the present one, (B,); the last one of a task is its own successor."""
        last = (self.phase + 1) % targets.count == 0
        return torch.where(last, self.phase, self.phase + 1)

    def advanced(self, latent: Float[Tensor, "B D"], targets: PhaseTargets, config: PhaseConfig) -> Progress:
        """Return the progress after one more chunk; at most one phase on.

        Args:
            latent: scaled, expected after the chunk.
            targets: of all phases.
            config: when a phase is left.
        """
        following = self.following(targets)
        near, far = targets.distance(latent, following), targets.distance(latent, self.phase)
        says = (near < far - config.switch_margin) & (near < targets.switch[following])
        agreed = torch.where(says, self.agreed + 1, 0)
        switch = agreed >= config.switch_decisions
        return Progress(torch.where(switch, following, self.phase), torch.where(switch, 0, agreed))


def count_through(
    frames: Frames, targets: PhaseTargets, config: PhaseConfig, executed: int, texts: TaskTexts | None = None
) -> list[list[int]]:
    """Count the phases of each demonstration as guidance would, from the latents that really followed.

    Args:
        frames: scaled.
        targets: of all phases.
        config: see `PhaseConfig`.
        executed: steps between two chunks.
        texts: of the tasks, if there are several.

    Returns:
        The phase of its task after each chunk, per demonstration.
    """
    found = []
    task = frames.tasks(texts or NO_TEXTS)
    for number in torch.unique(frames.trajectory):
        inside = frames.trajectory == number
        latents = frames.latents[inside]
        at = Progress.start(task[inside][:1] * targets.count)
        seen = []
        for after in range(executed, len(latents), executed):
            at = at.advanced(latents[[after]], targets, config)
            seen.append(int(at.phase) % targets.count)
        found.append(seen)
    return found


def reached_share(counted: list[list[int]], phases: int) -> float:
    """Share of demonstrations that were counted through to the last phase; warns when it is low."""
    share = float(np.mean([bool(seen) and seen[-1] == phases - 1 for seen in counted]))
    if share < ENOUGH:
        logger.warning(
            "only %.0f %% of the demonstrations are counted through to the last of %d phases, so later "
            "phases are hardly guided: choose fewer phases or fewer switch_decisions",
            100 * share,
            phases,
        )
    return share
