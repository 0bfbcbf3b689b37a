"""What a policy is compared with: a robot or task, and recordings."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.features import Feature
from data.formats.registry import open_source
from data.imports import import_object
from data.records import Episode
from hardware.action_spec import ActionSpec
from hardware.robot import Robot

if TYPE_CHECKING:
    from pathlib import Path

    from robot_rl.task_settings import TaskSettings

_EPISODES = 20
"""Recordings that are looked at, at most."""


@dataclass(frozen=True)
class Side:
    """What a robot, a task or recordings say of themselves.

    Attributes:
        name: for messages, such as "the task reach".
        features: of observations.
        action_spec: of actions; None where it is not said.
        episodes: of recordings.
    """

    name: str
    features: Mapping[str, Feature]
    action_spec: ActionSpec | None
    episodes: tuple[Episode, ...] = ()


def task_side(name: str, settings: TaskSettings) -> Side:
    """Return what a task says.

    Raises:
        UnknownTaskError: there is no such task.
        TaskError: it says too little.
    """
    import sim
    from sim.task import task_of

    with contextlib.closing(sim.make(name, **settings.task_arguments)) as env:
        task = task_of(env)
        return Side(f"the task {name}", dict(task.features), task.action_spec)


def robot_side(path: str) -> Side:
    """Return what a robot says, without connecting to it.

    Args:
        path: ``module:NAME`` of a `hardware.robot.Robot`, or of what makes one without arguments.

    Raises:
        ValueError: it leads to something else.
    """
    found = import_object(path)
    try:
        robot = found() if callable(found) else found
    except TypeError as error:
        raise ValueError(f"robot is {path!r}, which cannot be made without arguments: {error}") from error
    if not isinstance(robot, Robot):
        raise ValueError(  # noqa: TRY004 - the caller's text is wrong
            f"robot is {path!r}, which gives a {type(robot).__name__}; a hardware.robot.Robot is needed, as "
            "hardware/template_robot.py shows."
        )
    return Side(f"the robot {robot.name}", robot.features, robot.action_spec)


def data_side(path: Path) -> Side:
    """Return what recordings say and the first of them.

    Raises:
        FileNotFoundError: there is nothing at the path.
        DatasetError: it cannot be read.
    """
    source = open_source(path)
    spec = None if source.action_spec is None else ActionSpec.from_json(source.action_spec)
    episodes = tuple(itertools.islice(source.episodes, _EPISODES))
    if not episodes:
        raise ValueError(f"data is {path}, which holds no episode.")
    return Side(f"the recordings in {path.name}", source.features, spec, episodes)
