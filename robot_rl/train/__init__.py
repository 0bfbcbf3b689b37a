"""Behaviour cloning of a base policy: demonstrations, windows, updates, held-out error and its page."""

from robot_rl.train.cloning import TrainConfig, train
from robot_rl.train.fitting import Progress, learning_rate

__all__ = ["Progress", "TrainConfig", "learning_rate", "train"]
