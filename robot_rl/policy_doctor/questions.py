"""What can be asked about a policy; starts without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robot_rl.task_settings import TaskSettings

_MOST_CHUNKS = 10_000


@dataclass(frozen=True)
class PolicyQuestions(TaskSettings):
    """What `robot-rl doctor` is asked about a policy."""

    policy: Path | None = None
    """folder, hub id or address of a policy: look at it, not at this machine"""
    task: str = ""
    """task that it should run in"""
    robot: str = ""
    """module:NAME of the robot that it should run on; nothing is connected or moved"""
    data: Path | None = None
    """recordings of that robot, in any format that is read"""
    revision: str | None = None
    """branch, tag or commit on the hub"""
    device: str = "cpu"
    """torch device that is timed"""
    chunks: int = 20
    """how many chunks are timed"""
    write_mapping: bool = False
    """write robot_rl.json into the folder of a LeRobot checkpoint: units, names, rate and renamed keys"""

    def __post_init__(self) -> None:
        """Check what was asked."""
        super().__post_init__()
        if not 1 <= self.chunks <= _MOST_CHUNKS:
            raise ValueError(f"chunks is {self.chunks}, allowed is 1 to {_MOST_CHUNKS:,}")
        if self.task and self.robot:
            raise ValueError(f"task is {self.task} and robot is {self.robot}: give one of them")
        asked = [
            name for name in ("task", "robot", "data", "revision", "write_mapping") if getattr(self, name)
        ]
        if self.policy is None and asked:
            raise ValueError(f"{', '.join(asked)} says what a policy is compared with: give --policy")
