"""SimRobot: a simulated task as a robot, so that everything written for a real one runs without it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hardware.robot import RobotError, action_array, action_dict, lerobot_features
from sim.env import MujocoTask
from sim.registry import make

if TYPE_CHECKING:
    import numpy as np

    from data.features import Features
    from hardware.action_spec import ActionSpec

logger = logging.getLogger(__name__)


class SimRobot:
    """The Robot protocol over a simulated task; one `send_action` is one control step of simulated time.

    An episode that ends (success, failure, time) leaves the robot where it is: further actions do nothing
    until the scene is set up again with `reset_scene` or `connect`. Like a real robot it reports no reward.

    Args:
        task: name of the task (see `sim.registry.make`), or an environment.
        seed: seed of the first episode; later ones follow from it.
        **options: handed to `make`.
    """

    def __init__(self, task: str | MujocoTask = "reach", *, seed: int = 0, **options: Any) -> None:  # noqa: ANN401
        env = make(task, **options).unwrapped if isinstance(task, str) else task
        if not isinstance(env, MujocoTask):
            raise TypeError(f"SimRobot needs a task derived from MujocoTask, not {type(env).__name__}.")
        self.env = env
        self.name = f"sim_{type(env).__name__.lower()}"
        self.info: dict[str, Any] = {}
        self._seed: int | None = seed
        self._observation: dict[str, Any] | None = None
        self._over = False

    @property
    def features(self) -> Features:
        """What an observation contains, with units and names."""
        return self.env.features

    @property
    def action_spec(self) -> ActionSpec:
        """What an action means."""
        return self.env.action_spec

    @property
    def observation_features(self) -> dict[str, Any]:
        """LeRobot's description of an observation."""
        return lerobot_features(self.features)

    @property
    def action_features(self) -> dict[str, Any]:
        """LeRobot's description of an action."""
        return dict.fromkeys(self.action_spec.names, float)

    @property
    def is_connected(self) -> bool:
        """Whether `connect` was called and `disconnect` was not."""
        return self._observation is not None

    def connect(self, calibrate: bool = True) -> None:  # noqa: ARG002 - LeRobot's signature
        """Set up the scene of the first episode."""
        self.reset_scene()

    def reset_scene(self) -> None:
        """Set up the next episode, as a person would who puts the parts back."""
        self._observation, self.info = self.env.reset(seed=self._seed)
        self._seed = None
        self._over = False

    def get_observation(self) -> dict[str, Any]:
        """Return a copy of the latest sensor readings and the task in words.

        Raises:
            RobotError: not connected.
        """
        return {key: value.copy() for key, value in self._connected().items()} | {"task": self.env.task_text}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Run one control step.

        Args:
            action: value of each dimension by name, SI units.

        Returns:
            The action after clipping to the limits.

        Raises:
            RobotError: not connected.
            ValueError: a dimension is missing, unknown or not a number.
        """
        self._connected()
        clipped = self.action_spec.clip(action_array(self.action_spec, action))
        if not self._over:
            self._observation, _, terminated, truncated, self.info = self.env.step(clipped)
            self._over = terminated or truncated
        return dict(action_dict(self.action_spec, clipped))

    def stop(self, because: str) -> None:
        """Ignore every further action until the scene is set up again.

        Args:
            because: why, for the log.
        """
        if not self._over:
            logger.warning("%s stopped: %s", self.name, because)
        self._over = True

    def disconnect(self) -> None:
        """Stop and free the renderer; may be called at any time, also twice."""
        self._observation = None
        self.env.close()

    def _connected(self) -> dict[str, np.ndarray[Any, Any]]:
        if self._observation is None:
            raise RobotError(f"{self.name} is not connected; call connect() first.")
        return self._observation
