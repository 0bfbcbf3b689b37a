"""``robot-rl doctor --policy``: whether a checkpoint fits a robot and recordings, and what it is good for."""
