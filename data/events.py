"""What happened at one moment of an episode: a pause, a takeover, a mark that a person set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from data.plain import plain


class EventKind(StrEnum):
    """What kind of moment it was."""

    PAUSE = "pause"
    RESUME = "resume"
    TAKEOVER = "takeover"
    HANDBACK = "handback"
    REWIND = "rewind"
    MARK_SUCCESS = "mark_success"
    MARK_FAILURE = "mark_failure"
    EMERGENCY_STOP = "emergency_stop"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One moment of an episode; a pause is two of them, and no steps between.

    Attributes:
        time: Monotonic time when it happened, s; the clock of the steps and streams.
        wall_time: Time of day when it happened, s since 1970-01-01 UTC.
        kind: What it was.
        because: Why, in words for people.
        data: Further facts; kept as JSON types, numbers that are not finite become None.
    """

    time: float
    wall_time: float
    kind: EventKind
    because: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the kind and the times, and keep a copy of the facts."""
        put = object.__setattr__
        put(self, "kind", EventKind(self.kind))
        put(self, "data", plain(dict(self.data)))
        for name in ("time", "wall_time"):
            value = float(getattr(self, name))
            if not math.isfinite(value):
                raise ValueError(
                    f"Event {self.kind}: {name} is {value}; give the finite seconds of the clock it is from."
                )
            put(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """The event with JSON types only; the inverse of `from_json`."""
        return {
            "time": self.time,
            "wall_time": self.wall_time,
            "kind": str(self.kind),
            "because": self.because,
            "data": dict(self.data),
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Event:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is no event.
        """
        try:
            return cls(**mapping)
        except TypeError as error:
            raise ValueError(f"No event can be read from {dict(mapping)!r}: {error}.") from error
