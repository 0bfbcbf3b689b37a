"""One task, its observations under the names that LeRobot's loops read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from lerobot.envs.utils import NEW_ROLLOUT_OPTION

import sim
from sim.task import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NAMES = {"observation.state": "agent_pos", "observation.environment_state": "environment_state"}
_IMAGES = "observation.images."
_PICTURE = (240, 320)


def lerobot_key(key: str) -> str:
    """Return the name that LeRobot's `preprocess_observation` turns into an observation key.

    Args:
        key: such as ``observation.state``; images become ``pixels/NAME``, the rest loses its prefix.
    """
    if key.startswith(_IMAGES):
        return f"pixels/{key.removeprefix(_IMAGES)}"
    return _NAMES.get(key, key.removeprefix("observation."))


class LeRobotTask(gymnasium.Env[dict[str, Any], Any]):
    """A task of `sim.make` as LeRobot's rollout expects an environment.

    Args:
        name: of the task.
        options: of its constructor.
        video: whether `render` draws; else it gives a black picture.
    """

    def __init__(self, name: str, options: Mapping[str, Any], *, video: bool = True) -> None:
        self._env = sim.make(name, **options)
        self._task = task_of(self._env, "max_steps", "control_hz")
        self._video = video
        self.task = name
        self.render_mode = "rgb_array"
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(self._task.control_hz)}
        self._max_episode_steps = self._task.max_steps
        self.action_space = self._env.action_space
        space = self._env.observation_space
        assert isinstance(space, spaces.Dict), "a task observes by key"
        self.observation_space = _dict_space(_nested(space.spaces))

    @property
    def task_description(self) -> str:
        """The running episode's task in words."""
        return self._task.task_text

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode; see `gymnasium.Env.reset`."""
        given = {key: value for key, value in (options or {}).items() if key != NEW_ROLLOUT_OPTION}
        observation, info = self._env.reset(seed=seed, options=given)
        return _nested(observation), {**info, "is_success": False}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:  # noqa: ANN401 - an array
        """Run one control step; ``info["is_success"]`` is the task's own judgement."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        info = {**info, "is_success": bool(info["success"])}
        return _nested(observation), float(reward), terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """Return a picture (height, width, 3)."""
        if not self._video:
            return np.zeros((*_PICTURE, 3), np.uint8)
        return task_of(self._env, "picture").picture(height=_PICTURE[0], width=_PICTURE[1])

    def close(self) -> None:
        """Close the task."""
        self._env.close()


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values under LeRobot's names, images in a dictionary of their own."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = lerobot_key(key)
        if name.startswith("pixels/"):
            found.setdefault("pixels", {})[name.removeprefix("pixels/")] = value
        else:
            found[name] = value
    return found


def _dict_space(values: Mapping[str, Any]) -> spaces.Dict:
    return spaces.Dict({k: _dict_space(v) if isinstance(v, dict) else v for k, v in values.items()})
