"""One step of an environment, checked: what breaks the task contract is named before it is recorded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import gymnasium
    from numpy.typing import NDArray


class EnvironmentFailedError(RuntimeError):
    """An environment raised, or returned what the task contract does not allow."""


class Taken(NamedTuple):
    """What one step gave; as `gymnasium.Env.step` returns it."""

    observation: Mapping[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


def take_step(env: gymnasium.Env[Any, Any], action: NDArray[np.float64], seed: int, step: int) -> Taken:
    """Step an environment.

    Args:
        env: the task.
        action: (A,) robot units.
        seed: of the episode, for messages.
        step: counted from 0, for messages.

    Raises:
        EnvironmentFailedError: it raised, its reward or an observation is not finite, or `info` lacks
            `success`.
    """
    where = f"{type(env.unwrapped).__name__}, seed {seed}, step {step}"
    try:
        observation, reward, terminated, truncated, info = env.step(action)
    except Exception as error:
        raise EnvironmentFailedError(
            f"{where}: the environment failed with {type(error).__name__}: {error}; --debug shows where"
        ) from error
    if not math.isfinite(reward):
        raise EnvironmentFailedError(f"{where}: the reward is {reward}; the task must give finite ones")
    if "success" not in info:
        raise EnvironmentFailedError(f"{where}: info lacks 'success'; the task must say at every step")
    for key, value in observation.items():
        if np.asarray(value).dtype.kind == "f" and not np.isfinite(value).all():
            raise EnvironmentFailedError(f"{where}: {key} is not finite; a missing sensor must be an error")
    return Taken(observation, float(reward), bool(terminated), bool(truncated), info)
