"""What is wrong with recorded data, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Kind(StrEnum):
    """What can be found; the values are what the command line and the JSON file call them."""

    DAMAGED = "damaged"
    PARTIAL = "partial"
    LENGTHS = "lengths"
    FEATURES = "other_features"
    LAST_OBSERVATION = "missing_last_observation"
    EARLY_END = "early_end"
    OUTCOME = "missing_outcome"
    TIME_ORDER = "time_order"
    NO_TIMES = "no_times"
    DUPLICATE_TIME = "duplicate_time"
    GAP = "gap"
    CLOCK = "clock_step"
    RATE = "wrong_rate"
    NOT_FINITE = "not_finite"
    FROZEN = "frozen"
    REPEATS = "repeats"
    CONSTANT = "constant"
    SATURATED = "saturated"
    MISALIGNED = "misaligned"
    LEAD = "command_lead"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Attributes:
        kind: What it is.
        severity: ``error``: do not train on it; ``warning``: look at it first; ``note``: true of the data and
            good to know.
        message: What was found and what to do.
        episode: Id of the episode; empty when it is true of all of them together.
        feature: Key, such as ``observation.state``, ``action`` or ``steps`` for the control steps' own times;
            empty when it is about the episode.
        dimension: Name of the dimension; empty when it is about the whole feature.
        first_step: First row concerned, counted from 0; None when no row is. Rows of a stream are its
            samples, rows of an observation, an action or ``steps`` are control steps.
        last_step: Last row concerned.
        first_time: Monotonic time of the first row, s.
        last_time: Monotonic time of the last row, s.
    """

    kind: Kind
    severity: Severity
    message: str
    episode: str = ""
    feature: str = ""
    dimension: str = ""
    first_step: int | None = None
    last_step: int | None = None
    first_time: float | None = None
    last_time: float | None = None

    @classmethod
    def at(
        cls,
        kind: Kind,
        severity: Severity,
        message: str,
        *,
        episode: str,
        feature: str,
        times: NDArray[np.float64],
        rows: Sequence[int] | NDArray[np.int64],
        dimension: str = "",
    ) -> Finding:
        """A finding about some rows, of which the first and the last are kept.

        Args:
            kind: What it is.
            severity: How much it matters.
            message: What was found and what to do.
            episode: Id of the episode.
            feature: Key.
            times: (N,) of every row, s.
            rows: At least one, in order.
            dimension: Name of the dimension.
        """
        first, last = int(rows[0]), int(rows[-1])
        moments = [float(time) if np.isfinite(time) else None for time in times[[first, last]]]
        return cls(
            kind=kind,
            severity=severity,
            message=message,
            episode=episode,
            feature=feature,
            dimension=dimension,
            first_step=first,
            last_step=last,
            first_time=moments[0],
            last_time=moments[1],
        )

    @property
    def place(self) -> str:
        """Where it is, in words, such as ``a-3, observation.state[joint2], steps 4 to 9``."""
        what = f"{self.feature}[{self.dimension}]" if self.dimension else self.feature
        rows = ""
        if self.first_step is not None:
            rows = f"step {self.first_step}"
            if self.last_step not in (None, self.first_step):
                rows = f"steps {self.first_step} to {self.last_step}"
        return ", ".join(part for part in (self.episode or "all episodes", what, rows) if part)

    def to_json(self) -> dict[str, Any]:
        """The finding with JSON types only."""
        return {**asdict(self), "kind": str(self.kind), "severity": str(self.severity)}


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that was found.

    Attributes:
        findings: In the order of the episodes; what is true of all of them comes last.
        episodes: How many episodes were looked at, damaged ones included.
        steps: How many steps they have.
        measured: What was measured over all episodes: ``lag_steps`` and ``lag_s`` by which the motion follows
            the action, and their ``correlation``; empty where that cannot be told.
        ignored: Findings left out on request, by kind.
    """

    findings: Sequence[Finding]
    episodes: int
    steps: int
    measured: Mapping[str, float] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)

    @property
    def fine(self) -> bool:
        """Whether there is nothing but notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Number of findings of one severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def without(self, kinds: Collection[Kind]) -> Report:
        """The report without findings of some kinds; it says how many were left out."""
        kept = [finding for finding in self.findings if finding.kind not in kinds]
        left = [str(finding.kind) for finding in self.findings if finding.kind in kinds]
        return replace(self, findings=kept, ignored={kind: left.count(kind) for kind in sorted(set(left))})

    def to_json(self) -> dict[str, Any]:
        """The report with JSON types only, for other programs."""
        return {
            "fine": self.fine,
            "episodes": self.episodes,
            "steps": self.steps,
            "counts": {str(severity): self.count(severity) for severity in Severity},
            "measured": dict(self.measured),
            "ignored": dict(self.ignored),
            "findings": [finding.to_json() for finding in self.findings],
        }
