"""Refined frozen policies of robot-rl as a LeRobot policy of type ``robot_rl``.

LeRobot finds the parts by their names: `configuration_robot_rl`, `modeling_robot_rl` and
`processor_robot_rl`. `robot-rl export` writes what `lerobot-eval --policy.path` reads.
"""

from lerobot_policy_robot_rl.configuration_robot_rl import RobotRlConfig

__all__ = ["RobotRlConfig"]
