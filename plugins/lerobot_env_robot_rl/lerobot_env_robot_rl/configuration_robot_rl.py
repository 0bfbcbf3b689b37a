"""``--env.type=robot_rl``: which task LeRobot's programs run."""

from __future__ import annotations

import functools
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.envs.utils import freeze_after_episode_end

import sim
from lerobot_env_robot_rl.task_env import LeRobotTask, lerobot_key
from sim.task import task_of

if TYPE_CHECKING:
    import gymnasium

_KINDS = {"agent_pos": FeatureType.STATE, "environment_state": FeatureType.ENV}


@EnvConfig.register_subclass("robot_rl")
@dataclass
class RobotRlEnv(EnvConfig):  # type: ignore[misc] # LeRobot ships no types
    """A task of `sim.make`.

    Attributes:
        task: task name, Gymnasium id, or ``module:Class``.
        options: options of the task's constructor.
        cameras: cameras whose pictures are observed, where the task has any.
        video: whether LeRobot's videos show the task; without, they are black and nothing is drawn.
    """

    task: str | None = "push-disc"
    options: dict[str, Any] = field(default_factory=dict)
    cameras: list[str] = field(default_factory=list)
    video: bool = True

    def __post_init__(self) -> None:
        """Take rate and shapes from the task."""
        with closing(sim.make(str(self.task), **self.gym_kwargs)) as env:
            task = task_of(env, "max_steps", "control_hz")
            self.fps = round(task.control_hz)
            self.features = {"action": PolicyFeature(FeatureType.ACTION, (task.action_spec.size,))}
            self.features_map = {"action": "action"}
            for key, feature in task.features.items():
                name = lerobot_key(key)
                kind = FeatureType.VISUAL if feature.is_image else _KINDS.get(name, FeatureType.STATE)
                self.features[name] = PolicyFeature(kind, feature.shape)
                self.features_map[name] = key

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """What the task's constructor is given."""
        return {**self.options, **({"cameras": tuple(self.cameras)} if self.cameras else {})}

    def create_envs(
        self, n_envs: int, use_async_envs: bool = False
    ) -> dict[str, dict[int, gymnasium.vector.VectorEnv[Any, Any, Any]]]:
        """Return one vector environment; see LeRobot's `EnvConfig.create_envs`."""
        make = functools.partial(LeRobotTask, str(self.task), self.gym_kwargs, video=self.video)
        makers = [freeze_after_episode_end(make) for _ in range(n_envs)]
        vector = (
            AsyncVectorEnv(makers, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP)
            if use_async_envs and n_envs > 1
            else SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        )
        return {"robot_rl": {0: vector}}
