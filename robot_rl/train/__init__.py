"""Behaviour cloning of a base policy: demonstrations, windows, updates, held-out error and its page."""

from robot_rl.train.cloning import Progress, TrainConfig, learning_rate, train

__all__ = ["Progress", "TrainConfig", "learning_rate", "train"]
