"""Replay for training: whole episodes in, transitions and chunks out."""

from data.replay.batch import Batch
from data.replay.buffer import ReplayBuffer
from data.replay.mixture import sample_mixture
from data.replay.recording import Recording
from data.replay.sampling import Fresh, PerTask, Prioritised, Recent, Sampler, Uniform

__all__ = [
    "Batch",
    "Fresh",
    "PerTask",
    "Prioritised",
    "Recent",
    "Recording",
    "ReplayBuffer",
    "Sampler",
    "Uniform",
    "sample_mixture",
]
