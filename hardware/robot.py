"""The robot as the rest of the project sees it: LeRobot's contract, without LeRobot, and a way to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from data.features import Features
    from hardware.action_spec import ActionSpec


class RobotError(RuntimeError):
    """A robot does not answer, or answers with something else than it declared."""


@runtime_checkable
class Robot(Protocol):
    """A robot, real or simulated.

    Its methods are those of a LeRobot robot, so that either may stand in for the other. Observations are
    arrays by LeRobot key, in SI units, pictures uint8 (height, width, channels). A sensor that does not
    answer raises; it is never replaced by zeros.
    """

    name: str

    @property
    def features(self) -> Features:
        """What an observation contains, with units and names."""
        ...

    @property
    def action_spec(self) -> ActionSpec:
        """What an action means."""
        ...

    @property
    def observation_features(self) -> dict[str, Any]:
        """LeRobot's description of an observation: ``float`` or a shape by key."""
        ...

    @property
    def action_features(self) -> dict[str, Any]:
        """LeRobot's description of an action: ``float`` by dimension name."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether the robot answers."""
        ...

    def connect(self, calibrate: bool = True) -> None:
        """Connect, and calibrate if the robot needs it.

        Raises:
            RobotError: The robot or one of its sensors does not answer.
        """
        ...

    def get_observation(self) -> dict[str, Any]:
        """Read every sensor.

        Raises:
            RobotError: Not connected, or a sensor does not answer.
        """
        ...

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Send one action.

        Args:
            action: Value of each dimension by name, units of the `ActionSpec`; see `action_dict`.

        Returns:
            The action that was really sent, after the robot's own limits.

        Raises:
            RobotError: Not connected.
        """
        ...

    def stop(self, because: str) -> None:
        """Stop moving at once and stay there; may be called at any time, also twice.

        Args:
            because: Why, for the log and the operator.
        """
        ...

    def disconnect(self) -> None:
        """Stop and close every connection; may be called at any time, also twice."""
        ...


def action_dict(spec: ActionSpec, action: ArrayLike) -> dict[str, float]:
    """An action (A,) as value by dimension name.

    Raises:
        ValueError: The width is not that of the specification.
    """
    values = np.asarray(action, np.float64)
    if values.shape != (spec.size,):
        raise ValueError(f"Action has shape {values.shape}; ({spec.size},) is needed: {spec.names}.")
    return dict(zip(spec.names, values.tolist(), strict=True))


def action_array(spec: ActionSpec, action: Mapping[str, float]) -> NDArray[np.float64]:
    """An action (A,) from value by dimension name, in the order of the specification.

    Raises:
        ValueError: A dimension is missing or unknown; names it.
    """
    missing, unknown = set(spec.names) - action.keys(), action.keys() - set(spec.names)
    if missing or unknown:
        raise ValueError(
            f"Action lacks {sorted(missing)} and has the unknown {sorted(unknown)}; it is {spec.names}."
        )
    return np.array([action[name] for name in spec.names], np.float64)


def lerobot_features(features: Features) -> dict[str, Any]:
    """LeRobot's description of an observation: ``float`` for scalars, the shape otherwise."""
    return {key: feature.shape or float for key, feature in features.items()}
