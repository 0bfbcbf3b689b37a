"""Template: a robot of your own. Copy this file into your package; nothing in the library needs an edit.

It shows the one place where a robot's own units and calls end: inside are joint angles in radians, outside a
driver that speaks degrees. Try it without hardware:

    robot = BenchArm(StandIn())
    robot.connect()
    robot.send_action(action_dict(robot.action_spec, [0.1, 0.0]))

A robot that LeRobot drives has these methods already.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from hardware.robot import RobotError, action_array, action_dict, lerobot_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data.features import Features

logger = logging.getLogger(__name__)
_JOINTS = ("shoulder", "elbow")


class Driver(Protocol):
    """What the maker's library gives; put yours in its place."""

    def open(self) -> None:
        """Open the connection."""
        ...

    def read(self) -> Sequence[float] | None:
        """Joint angles in degrees, or None when the arm did not answer in time."""
        ...

    def move_to(self, degrees: Sequence[float]) -> None:
        """Move the joints there."""
        ...

    def hold(self) -> None:
        """Brake at once and hold."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class BenchArm:
    """A two-joint arm behind the Robot protocol (`hardware.robot.Robot`).

    Args:
        driver: How to reach it.
    """

    # 1. A name for records and messages.
    name = "bench_arm"

    # 2. What an observation holds, under LeRobot's keys, in SI units. Policies and datasets check against it.
    features: Features = {"observation.state": Feature((2,), "float32", "rad", _JOINTS)}  # noqa: RUF012 - never changed

    # 3. What an action means: absolute or relative, unit, limits, rate. The limits are the robot's safe ones.
    action_spec = ActionSpec(
        (
            ActionGroup(
                "arm", 2, "absolute", "joint", unit="rad", low=(-1.5, -2.0), high=(1.5, 2.0), names=_JOINTS
            ),
        ),
        rate_hz=50.0,
    )

    def __init__(self, driver: Driver) -> None:
        # 4. Building a robot opens nothing; `connect` does.
        self._driver = driver
        self._connected = False
        self._stopped = ""

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
        """Whether the robot answers."""
        return self._connected

    def connect(self, calibrate: bool = True) -> None:
        """Connect and read every sensor once, so that a missing one is found before anything moves."""
        del calibrate  # this arm has absolute encoders
        self._driver.open()
        self._connected, self._stopped = True, ""
        self.get_observation()

    def get_observation(self) -> dict[str, Any]:
        """Read every sensor.

        Raises:
            RobotError: Not connected, or the arm does not answer.
        """
        self._check()
        degrees = self._driver.read()
        # 5. A missing sensor is an error, never zeros, and never the last value.
        if degrees is None or not all(math.isfinite(angle) for angle in degrees):
            raise RobotError(f"{self.name} gave no joint angles ({degrees}); check its power and cable.")
        return {"observation.state": np.radians(degrees).astype(np.float32)}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Send one action; see `hardware.robot.Robot.send_action`.

        Raises:
            RobotError: Not connected, or stopped.
            ValueError: A joint is missing, unknown, or not a number.
        """
        self._check()
        if self._stopped:
            raise RobotError(f"{self.name} was stopped: {self._stopped}. Call connect() to go on.")
        # 6. Limit, send, and return what was really sent: that is what a learner must see.
        sent = self.action_spec.clip(action_array(self.action_spec, action))
        self._driver.move_to(np.degrees(sent).tolist())
        return dict(action_dict(self.action_spec, sent))

    def stop(self, because: str) -> None:
        """Stop at once and stay; may be called at any time, also twice."""
        # 7. Stopping comes first and asks for nothing: not for a connection, not for a good state.
        if self._connected:
            self._driver.hold()
        if not self._stopped:
            logger.warning("%s stopped: %s", self.name, because)
        self._stopped = because

    def disconnect(self) -> None:
        """Stop and close the connection; may be called at any time, also twice."""
        if self._connected:
            self.stop("disconnected")
            self._driver.close()
        self._connected = False

    def _check(self) -> None:
        if not self._connected:
            raise RobotError(f"{self.name} is not connected; call connect() first.")


class StandIn:
    """A driver without an arm, for trying and for tests: it is always where it was sent."""

    def __init__(self) -> None:
        self.degrees: list[float] | None = [0.0, 0.0]
        self.held = False

    def open(self) -> None:
        """Do nothing."""

    def read(self) -> list[float] | None:
        """Joint angles in degrees."""
        return self.degrees

    def move_to(self, degrees: Sequence[float]) -> None:
        """Be there."""
        self.degrees = list(degrees)

    def hold(self) -> None:
        """Remember that it was braked."""
        self.held = True

    def close(self) -> None:
        """Do nothing."""
