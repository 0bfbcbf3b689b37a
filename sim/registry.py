"""Which tasks exist, and how a name becomes an environment.

A name is one of three things: a command-line name (`peg-insert`), a Gymnasium id (`robot_rl/PegInsert-v0` or
anybody else's), or an import path `module:Class`. The last adds a task without editing a file of this
package.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium

from data.hints import did_you_mean
from data.imports import ImportPathError, import_object

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TaskEntry:
    """One built-in task.

    Attributes:
        name: command-line name.
        gym_id: Gymnasium id.
        entry_point: `module:Class` of the environment.
    """

    name: str
    gym_id: str
    entry_point: str


TASKS: dict[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        TaskEntry("peg-insert", "robot_rl/PegInsert-v0", "sim.peg_insert:PegInsert"),
        TaskEntry("pick-place", "robot_rl/PickPlace-v0", "sim.pick_place:PickPlace"),
        TaskEntry("push-disc", "robot_rl/PushDisc-v0", "sim.push_disc:PushDisc"),
        TaskEntry("push-two-routes", "robot_rl/PushTwoRoutes-v0", "sim.push_two_routes:PushTwoRoutes"),
        TaskEntry("pusht", "robot_rl/PushT-v0", "sim.pusht:PushT"),
        TaskEntry("reach", "robot_rl/Reach-v0", "sim.reach:Reach"),
        TaskEntry("robosuite-can", "robot_rl/RobosuiteCan-v0", "sim.robosuite_can:RobosuiteCan"),
    )
}


class UnknownTaskError(ValueError):
    """The task name is neither built in, nor a Gymnasium id, nor an importable `module:Class`."""


def register_tasks() -> None:
    """Register every built-in task with Gymnasium, once; the environments truncate themselves."""
    for entry in TASKS.values():
        if entry.gym_id not in gymnasium.registry:
            gymnasium.register(id=entry.gym_id, entry_point=entry.entry_point)


def resolve(name: str) -> str:
    """Turn a task name into what `make` builds.

    Args:
        name: command-line name, Gymnasium id, or `module:Class`.

    Returns:
        A `module:Class` for built-in tasks and import paths, else the Gymnasium id.

    Raises:
        UnknownTaskError: for any other name, with the nearest known ones.
    """
    if name in TASKS:
        return TASKS[name].entry_point
    for entry in TASKS.values():
        if name == entry.gym_id:
            return entry.entry_point
    if ":" in name or name in gymnasium.registry:
        return name
    known = [*TASKS, *(entry.gym_id for entry in TASKS.values())]
    hint = did_you_mean(name, known, f"known tasks: {', '.join(TASKS)}.", most=3, likeness=0.5, quoted=False)
    raise UnknownTaskError(
        f"unknown task {name!r}; {hint} Your own task can be given as module:Class or as a Gymnasium id."
    )


def make(name: str, **options: Any) -> gymnasium.Env[Any, Any]:  # noqa: ANN401 - each task has its own options
    """Build an environment.

    Args:
        name: see `resolve`.
        **options: keyword arguments of the environment's constructor (`shifts`, `cameras`, ...).

    Returns:
        The environment; built-in tasks and import paths come without Gymnasium wrappers.

    Raises:
        UnknownTaskError: for an unknown name, or an import path that leads nowhere.
        ValueError: for an option that the task does not have, or refuses.
    """
    target = resolve(name)
    if ":" not in target or target in gymnasium.registry:
        return gymnasium.make(target, **options)
    try:
        factory = import_object(target)
    except ImportPathError as error:
        raise UnknownTaskError(
            f"task {name!r} leads to {target!r}, which cannot be imported: {error.reason}"
        ) from error
    if not callable(factory):
        raise UnknownTaskError(
            f"task {name!r} leads to a {type(factory).__name__}: give a class or a function"
        )
    _refuse_unknown_options(name, factory, options)
    env: gymnasium.Env[Any, Any] = factory(**options)
    return env


def _refuse_unknown_options(name: str, factory: object, options: Mapping[str, Any]) -> None:
    """Compare options with the keywords of a class and of those that its constructor hands the rest on to."""
    known: list[str] = []
    for cls in factory.__mro__ if isinstance(factory, type) else ():
        parameters = inspect.signature(cls.__dict__["__init__"]).parameters if "__init__" in vars(cls) else {}
        kinds = {parameter.kind for parameter in parameters.values()}
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        known += [key for key, parameter in list(parameters.items())[1:] if parameter.kind in named]
        if parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    else:
        return  # a function, or nothing but keywords handed on: only the call itself can tell
    if unknown := sorted(options.keys() - set(known)):
        hint = did_you_mean(unknown[0], known, f"it has {', '.join(sorted(known)) or 'none'}.")
        raise ValueError(f"task {name!r} has no option {unknown[0]!r}; {hint}")
