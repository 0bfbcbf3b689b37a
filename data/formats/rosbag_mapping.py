"""What of a ROS 2 bag becomes what of an episode: the mapping file.

clock = "header"                # or "receive"
task = "insert the peg"

[control]
topic = "/forward_position_controller/commands"

[observations."observation.state"]
topic = "/joint_states"
names = ["shoulder", "elbow"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data.config import from_dict
from data.errors import DatasetError
from data.hints import did_you_mean
from data.layout import check_key


@dataclass(frozen=True)
class Topic:
    """One topic and what of its messages is taken.

    Attributes:
        topic: Its name, such as ``"/joint_states"``.
        names: Joints in the wanted order, matched by name; of a JointState or JointTrajectory. Those of the
            first message where empty.
        field: Which numbers: ``position``, ``velocity`` or ``effort`` of joints; ``axes`` or ``buttons`` of a
            Joy. ``position`` and ``axes`` where empty; other messages have one kind only.
        unit: Unit of the numbers, where the message does not say.
        mode: ``"absolute"`` or ``"delta"``; empty when not said.
        keep: ``"all"`` messages as a stream besides the steps, or only what the ``"steps"`` saw, which is
            enough for pictures that would not fit the memory.
        max_age_s: How old the newest message may be at a step; any age when None.
    """

    topic: str
    names: tuple[str, ...] = ()
    field: Literal["", "position", "velocity", "effort", "axes", "buttons"] = ""
    unit: str = ""
    mode: Literal["", "absolute", "delta"] = ""
    keep: Literal["all", "steps"] = "all"
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        """Check that there is a topic and the age is positive."""
        if not self.topic:
            raise ValueError("A mapped topic has no name; write topic = '/name'.")
        if self.max_age_s is not None and not self.max_age_s > 0:
            raise ValueError(f"max_age_s of {self.topic} is {self.max_age_s}; a positive number is needed.")


@dataclass(frozen=True)
class BagMapping:
    """A whole mapping file.

    Attributes:
        control: The topic of commands: each message is one step, its numbers are the action.
        observations: By key, such as ``observation.images.wrist``.
        clock: Which time of a message counts, for all topics: ``"header"``, the stamp that the sensor's
            driver set, or ``"receive"``, when the recorder got it.
        task: The task in words.
        robot: Which robot.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it.
    """

    control: Topic
    observations: Mapping[str, Topic]
    clock: Literal["header", "receive"]
    task: str = ""
    robot: str = ""
    action_spec: Mapping[str, Any] | None = field(default=None)

    def __post_init__(self) -> None:
        """Check the keys."""
        if not self.observations:
            raise ValueError("A mapping needs at least one entry under observations.")
        for key in self.observations:
            check_key(key)

    @property
    def topics(self) -> dict[str, Topic]:
        """Every mapped topic by key; ``action`` for the commands."""
        return {"action": self.control, **self.observations}


def load_mapping(mapping: Path | str | Mapping[str, Any] | None, there: Mapping[str, str]) -> BagMapping:
    """Read a mapping and check it against a bag.

    Args:
        mapping: Path of a TOML file, or its content.
        there: Type of each topic of the bag, for messages.

    Raises:
        DatasetError: It is missing or no TOML, or names a topic that the bag lacks.
        ValueError: A field is unknown or has an impossible value.
        TypeError: A field has the wrong type.
    """
    listed = "".join(f"\n  {topic}  {kind}" for topic, kind in sorted(there.items()))
    if mapping is None:
        raise DatasetError(
            "A bag needs a mapping file that says which topics are the action and the observations; give "
            f"mapping=PATH (on the command line --read mapping PATH). The bag has:{listed}"
        )
    found = from_dict(BagMapping, _content(mapping))
    for key, topic in found.topics.items():
        if topic.topic not in there:
            hint = did_you_mean(topic.topic, there)
            raise DatasetError(f"{key}: the bag has no topic {topic.topic!r}; {hint} It has:{listed}")
    return found


def _content(mapping: Path | str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(mapping, Mapping):
        return mapping
    try:
        return tomllib.loads(Path(mapping).read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"The mapping file {mapping} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"The mapping file {mapping} is no TOML: {error}.") from error
