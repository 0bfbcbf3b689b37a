"""The parts of a labelling rule: regions of an episode, and what a method makes of the steps of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Region(StrEnum):
    """Where in an episode a step lies."""

    EARLY = "P0"
    LAST = "P1"
    HUMAN = "H"
    AFTER = "P2"
    DEMO = "demos"
    AUTONOMOUS = "autonomous"
    PAUSED = "paused"


REGIONS: Mapping[Region, int] = MappingProxyType({region: code for code, region in enumerate(Region)})
"""Number of each region, for arrays of steps."""


class Imitate(StrEnum):
    """Weight of a step in imitation."""

    NO = "no"
    YES = "yes"
    GATE = "gate"
    """The gate's value when the episode succeeded, else 0."""
    CLASS = "class"
    """1 when a critic called the step progress or recovery, else 0."""
    SUCCESS = "success"
    """1 when the episode succeeded, else 0."""


class Indicator(StrEnum):
    """Where the advantage indicator that conditions a policy comes from."""

    NONE = "none"
    ADVANTAGE = "advantage"
    FORCED = "forced"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one method makes of the steps of one region.

    Attributes:
        imitate: Weight in imitation.
        critic: A critic or value network learns from the executed action.
        online: Belongs to the half of a batch that holds own experience.
        prior: Belongs to the half that holds demonstrations (demo buffer, offline buffer).
        viability: The episode's outcome is a label of these steps.
        progress: Targets of time to success, in episodes that succeeded.
        indicator: Where the advantage indicator comes from.
        preference: 0 undesirable, 1 desirable, 2 desirable and a person's; -1 none.
        cut: The episode ends before these steps; they and all that follow are dropped.
    """

    imitate: Imitate = Imitate.NO
    critic: bool = False
    online: bool = False
    prior: bool = False
    viability: bool = False
    progress: bool = False
    indicator: Indicator = Indicator.NONE
    preference: int = -1
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of the table.

    Attributes:
        name: Name of the method, as typed by a user.
        title: Name of the method, as written by its authors.
        source: Where the method is described.
        cells: By region, without `Region.PAUSED`: no method learns from a paused step.
        window: K, policy steps before a takeover that count as P1; at least 1, so that the frame at which
            the key was pressed is one of them.
        rewind: Whether rewinding counts as imitation data.
    """

    name: str
    title: str
    source: str
    cells: Mapping[Region, Cell]
    window: int = 10
    rewind: bool = False

    def __post_init__(self) -> None:
        """Check the window and that no cell is missing."""
        wanted = set(Region) - {Region.PAUSED}
        if set(self.cells) != wanted:
            raise ValueError(
                f"Rule {self.name!r} has cells for {sorted(self.cells)}; give one for each of "
                f"{sorted(wanted)}."
            )
        if self.window < 1:
            raise ValueError(
                f"Rule {self.name!r} has a window of {self.window}; at least 1 is needed: the frame at which "
                "a person took over belongs to the policy."
            )
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    @cached_property
    def lookup(self) -> Mapping[str, NDArray[Any]]:
        """What the cells say without the caller's values or the outcome, by column, each (R,) by region."""
        cells = [self.cells.get(region, Cell()) for region in Region]
        flags = ("critic", "online", "prior", "progress", "viability")
        found: dict[str, NDArray[Any]] = {name: np.array([getattr(c, name) for c in cells]) for name in flags}
        found["bc_weight"] = np.array([float(c.imitate is Imitate.YES) for c in cells])
        found["indicator"] = np.array([1 if c.indicator is Indicator.FORCED else -1 for c in cells], np.int8)
        found["preference"] = np.array([c.preference for c in cells], np.int8)
        return found

    @cached_property
    def special(self) -> tuple[tuple[Region, Cell], ...]:
        """The cells that need values of the caller or the outcome for weights and indicators."""
        plain = (Imitate.NO, Imitate.YES)
        return tuple(
            (region, cell)
            for region, cell in self.cells.items()
            if cell.imitate not in plain or cell.indicator is Indicator.ADVANTAGE
        )
