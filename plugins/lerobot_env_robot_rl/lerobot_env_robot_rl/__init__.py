"""The simulated tasks of robot-rl, and tasks of your own, as a LeRobot environment of type ``robot_rl``."""

from lerobot_env_robot_rl.configuration_robot_rl import RobotRlEnv

__all__ = ["RobotRlEnv"]
