"""A person at the robot: what they may command, and the devices that tell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from data.steps import SegmentKind, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandKind(StrEnum):
    """What a person wants.

    ``none`` and ``drive`` and ``pause`` hold for as long as they are polled; the others happen once.
    """

    NONE = "none"
    """Nobody intervenes: the policy drives."""
    DRIVE = "drive"
    """The person drives with the action of the command."""
    PAUSE = "pause"
    """The robot holds still and nothing is recorded but the pause."""
    SUCCESS = "success"
    """The episode ends here, well."""
    FAILURE = "failure"
    """The episode ends here, badly."""
    DISCARD = "discard"
    """The episode is thrown away, to be recorded again."""
    STOP = "stop"
    """The robot stops at once; only a person lets it go on."""


_LASTING = frozenset({CommandKind.NONE, CommandKind.DRIVE, CommandKind.PAUSE})


@dataclass(frozen=True, eq=False)
class Command:
    """One answer of a device.

    Attributes:
        kind: What the person wants.
        action: Action to execute, (A,), units of the `ActionSpec`; only and always with ``drive``.
        stamp: Monotonic time when the device was read, s.
        segment: What driving is for.
    """

    kind: CommandKind
    action: NDArray[np.float64] | None = None
    stamp: float = 0.0
    segment: SegmentKind = SegmentKind.CORRECTION

    def __post_init__(self) -> None:
        """Check that an action comes with ``drive`` and only then."""
        kind = CommandKind(self.kind)
        object.__setattr__(self, "kind", kind)
        if (self.action is None) == (kind is CommandKind.DRIVE):
            raise ValueError(
                f"A command {kind.value!r} {'needs an' if self.action is None else 'has no'} action."
            )
        if self.action is not None:
            object.__setattr__(self, "action", frozen(self.action, "float64"))


@runtime_checkable
class InterventionDevice(Protocol):
    """A pedal, a joystick, a leader arm or a web page."""

    def poll(self, now: float) -> Command:
        """What the person wants now.

        Args:
            now: Monotonic time, s.

        Raises:
            RuntimeError: The device does not answer; who asked decides, usually by stopping.
        """
        ...


class ScriptedIntervention:
    """A person who acts by the clock, for demonstrations without a device and for rehearsals.

    Args:
        script: Commands in order of their stamps; each holds from its stamp to that of the next.

    Raises:
        ValueError: The stamps do not grow.
    """

    def __init__(self, script: Sequence[Command]) -> None:
        stamps = [command.stamp for command in script]
        if any(b <= a for a, b in itertools.pairwise(stamps)):
            raise ValueError(f"Stamps of a script must grow, not {stamps}.")
        self._script = tuple(script)
        self._done = 0

    def poll(self, now: float) -> Command:
        """The command that holds at `now` (s); what happens once is told once, even when polled late."""
        while self._done < len(self._script) and self._script[self._done].stamp <= now:
            command = self._script[self._done]
            self._done += 1
            if command.kind not in _LASTING:
                return command
        current = self._script[self._done - 1] if self._done else None
        if current is None or current.kind not in _LASTING:
            return Command(CommandKind.NONE, stamp=now)
        return Command(current.kind, current.action, now, current.segment)
