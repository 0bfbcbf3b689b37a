"""How a task is built: options of its own, shifts of the hardware, cameras. The same names everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data.config import from_dict
from sim.shifts import NO_SHIFTS, Shifts


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What the constructor of a task is given; the part that all commands with a task have in common."""

    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the task's constructor, name and value in turn; several names as one value with commas"""
    shifts: Shifts = NO_SHIFTS
    """how the simulated hardware differs from the ideal one"""
    cameras: tuple[str, ...] = ()
    """cameras whose pictures are observed, where the task has any"""

    def __post_init__(self) -> None:
        """Check that nothing is given twice."""
        if twice := sorted({"shifts", "cameras"} & self.options.keys()):
            raise ValueError(
                f"options name {', '.join(twice)}: give --{twice[0]} itself, it has a type of its own"
            )

    @property
    def task_settings(self) -> dict[str, Any]:
        """The three as keyword arguments of another configuration."""
        return {"options": self.options, "shifts": self.shifts, "cameras": self.cameras}

    @property
    def task_arguments(self) -> dict[str, Any]:
        """What the constructor is given; a task that knows no shifts or cameras is not told of none."""
        shifts = {} if self.shifts == NO_SHIFTS else {"shifts": self.shifts}
        cameras = {"cameras": self.cameras} if self.cameras else {}
        return {**self.options, **shifts, **cameras}


def read_settings(options: Mapping[str, Any]) -> TaskSettings:
    """Read settings from the one table that the file of a study has for a task.

    Args:
        options: options of the task's constructor; ``shifts`` may be a table of `Shifts`, ``cameras`` a list.
            Another list of names becomes what the command line gives: one text with commas.

    Raises:
        ValueError: for an unknown shift, or one that is out of range.
        TypeError: for a value of another type.
    """
    typed = {name: options[name] for name in ("shifts", "cameras") if name in options}
    own = {name: _joined(value) for name, value in options.items() if name not in typed}
    return from_dict(TaskSettings, {"options": own, **typed})


def _joined(value: Any) -> Any:  # noqa: ANN401 - whatever is no list of names is judged by its type
    names = isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value)
    return ",".join(value) if names else value
