"""One control step and one planned chunk, as they happened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ACTION_COLUMNS = ("action_base", "action_policy", "action_intended", "action")
"""Columns of shape (T, A), float64."""
STEP_COLUMNS: Mapping[str, str] = {
    "chunk_id": "int64",
    "chunk_index": "int64",
    "source": "<U16",
    "segment_id": "int64",
    "segment_kind": "<U16",
    "reward": "float64",
    "terminated": "bool",
    "truncated": "bool",
    "wall_time": "float64",
    "monotonic_time": "float64",
    "gain": "float64",
}
"""Columns of shape (T,) and their type."""


def is_id(text: str) -> bool:
    """Whether a text can be the id of an episode."""
    return _ID.fullmatch(text) is not None


def check_id(id_: str) -> str:
    """Return an episode id that can safely name a folder.

    Raises:
        ValueError: The id is empty, longer than 128 characters or could leave its folder.
    """
    if not _ID.fullmatch(id_):
        raise ValueError(
            f"Episode id {id_!r} cannot name a folder; use 1 to 128 letters, digits, '.', '_' or '-', "
            "the first a letter or digit."
        )
    return id_


class Source(StrEnum):
    """Who chose the executed action of a step."""

    DEMO = "demo"
    POLICY = "policy"
    HUMAN = "human"
    PAUSED = "paused"


class SegmentKind(StrEnum):
    """What a stretch of human steps was for; none outside such a stretch."""

    NONE = "none"
    CORRECTION = "correction"
    RECOVERY = "recovery"
    REWIND = "rewind"


class Outcome(StrEnum):
    """How an episode ended, judged by the true state or a person."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One control step.

    Actions are (A,) in the units of the robot's `ActionSpec`; None where there was none.

    Attributes:
        action: What was executed, after person and guard; the only action a critic may see.
        action_base: What the frozen policy proposed.
        action_policy: The proposal after correction.
        action_intended: What the operator or expert meant, before noise and guard.
        chunk_id: Chunk that the proposal came from; -1 without one.
        chunk_index: Position of the proposal in that chunk; -1 without one.
        source: Who chose the executed action.
        segment_id: Number that grows by one whenever the source changes.
        segment_kind: What a human segment was for.
        reward: Reward of this step.
        terminated: The task ended here.
        truncated: The recording was cut here by a limit; the task had not ended.
        wall_time: Time of day when the action was sent, s since 1970-01-01 UTC.
        monotonic_time: Monotonic time when the action was sent, s.
        gain: Share of the refinement that was applied, 0 to 1.
    """

    action: NDArray[Any]
    action_base: NDArray[Any] | None = None
    action_policy: NDArray[Any] | None = None
    action_intended: NDArray[Any] | None = None
    chunk_id: int = -1
    chunk_index: int = -1
    source: Source = Source.POLICY
    segment_id: int = 0
    segment_kind: SegmentKind = SegmentKind.NONE
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    wall_time: float
    monotonic_time: float
    gain: float = 1.0


@dataclass(frozen=True, eq=False)
class Chunk:
    """One plan of the base policy.

    Attributes:
        id: Number of the chunk within its episode.
        first_step: Step at which it was computed.
        actions: The whole chunk before correction, (H, A), robot units.
        noise: What it was denoised from, (H, Z) in the policy's own space; None if not known.
        delay: Actions of the previous chunk that were executed while this one was computed.
        candidates: Chunks it was selected from, (N, H, A); None without selection.
        index: Which candidate was taken; None without selection.
    """

    id: int
    first_step: int
    actions: NDArray[Any]
    noise: NDArray[Any] | None = None
    delay: int = 0
    candidates: NDArray[Any] | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        """Check the axes and keep read-only copies."""
        for name, axes in (("actions", 2), ("noise", 2), ("candidates", 3)):
            value = getattr(self, name)
            if value is None:
                continue
            value = frozen(value)
            if value.ndim != axes:
                raise ValueError(f"Chunk {self.id}: {name} has shape {value.shape}; {axes} axes are needed.")
            object.__setattr__(self, name, value)


def frozen(value: ArrayLike, dtype: str | None = None) -> NDArray[Any]:
    """A read-only copy, as an array of the given type."""
    array = np.array(value, dtype)
    array.setflags(write=False)
    return array
