"""From LeRobot's configuration, the statistics and what the robot's side adds to a `PolicySpec`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from policies.checkpoint import CheckpointError
from policies.lerobot.mapping import RobotMapping
from policies.lerobot.settings import LeRobotSettings
from policies.policy import PolicySpec, Supports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


logger = logging.getLogger(__name__)

_MARGIN = 0.1
_PAIRS = (("min", "max"), ("q01", "q99"), ("q10", "q90"))
_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Layout:
    """How a family cuts time: see `PolicySpec` for the names."""

    observation_steps: int
    horizon: int
    executed_steps: int
    first_action: int
    noise_width: int | None = None


def describe(
    folder: Path,
    name: str,
    layout: Layout,
    *,
    features: Mapping[str, Any],
    keys: Mapping[str, str],
    statistics: Mapping[str, NDArray[Any]],
    mapping: RobotMapping,
    settings: LeRobotSettings,
    supports: Supports,
    reads_task: bool,
    data_rate: float | None = None,
) -> PolicySpec:
    """Return the spec of a checkpoint.

    Args:
        folder: for messages.
        name: of the policy.
        layout: of its chunks.
        features: key -> PolicyFeature of LeRobot, of what the robot supplies and of "action".
        keys: key of the checkpoint -> robot key, of every observation.
        statistics: of the actions, by name.
        mapping: what ``robot_rl.json`` says.
        settings: what the caller says; wins.
        supports: what the family offers.
        reads_task: whether it reads a text.
        data_rate: rate of the training data, Hz.

    Raises:
        CheckpointError: if widths disagree or nothing says the control rate.
    """
    seen: dict[str, Feature] = {}
    for theirs, ours in keys.items():
        feature = _feature(theirs, features[theirs])
        if seen.setdefault(ours, feature) != feature:
            raise CheckpointError(f"{folder}: keys map several features of unequal shapes to {ours!r}")
    defaults = {
        key: feature
        for key, feature in settings.default_features.items()
        if key in seen and (feature.shape, feature.dtype) == (seen[key].shape, seen[key].dtype)
    }
    stated = defaults | dict(mapping.features)
    sayings = _Sayings(folder, mapping, settings, data_rate)
    rate = sayings.rate()
    width = int(features["action"].shape[0])
    return PolicySpec(
        name=name,
        features={key: _stated(folder, key, feature, stated.get(key)) for key, feature in seen.items()},
        action_spec=sayings.action_spec(width, rate, statistics),
        observation_steps=layout.observation_steps,
        horizon=layout.horizon,
        executed_steps=layout.executed_steps,
        first_action=layout.first_action,
        rate_hz=rate,
        supports=supports,
        noise_width=layout.noise_width,
        reads_task=reads_task,
    )


def _feature(key: str, feature: Any) -> Feature:  # noqa: ANN401 - a feature of LeRobot
    if str(feature.type.value) != "VISUAL":
        return Feature(tuple(feature.shape), "float32")
    if len(feature.shape) != 3:
        raise CheckpointError(
            f"image {key!r} has shape {tuple(feature.shape)}; (channels, height, width) is expected"
        )
    channels, height, width = feature.shape
    return Feature((height, width, channels), "uint8")


def _stated(folder: Path, key: str, own: Feature, other: Feature | None) -> Feature:
    """The checkpoint's shape with the other side's unit and names."""
    if other is None:
        return own
    if (other.shape, other.dtype) != (own.shape, own.dtype):
        raise CheckpointError(
            f"{key!r} is {own.dtype} {own.shape} in {folder}, but {other.dtype} {other.shape} on the robot's "
            "side"
        )
    return other


@dataclass(frozen=True)
class _Sayings:
    """What may be said of actions and rate, and by whom."""

    folder: Path
    mapping: RobotMapping
    settings: LeRobotSettings
    data_rate: float | None

    @property
    def declared(self) -> ActionSpec | None:
        return self.mapping.action_spec

    def rate(self) -> float:
        """The control rate, Hz: from the caller, the mapping, the data, the actions, or by default."""
        stated = (self.settings.rate_hz, self.mapping.rate_hz, self.data_rate)
        for rate in stated:
            if rate is not None:
                return float(rate)
        if self.declared is not None:
            return self.declared.rate_hz
        default = self.settings.default_action_spec
        if default is not None:
            logger.warning(
                "%s does not say its rate: %g Hz, as given, is taken", self.folder, default.rate_hz
            )
            return default.rate_hz
        raise CheckpointError(
            f"{self.folder} does not say its control rate, as no LeRobot checkpoint does: give rate_hz=HZ, "
            'or data=FOLDER of the recordings it was trained on, or "rate_hz" in robot_rl.json beside it'
        )

    def action_spec(self, width: int, rate: float, statistics: Mapping[str, NDArray[Any]]) -> ActionSpec:
        """What the actions mean: as said, else as the default has it, else one group without a unit."""
        spec, default = self.declared, self.settings.default_action_spec
        if spec is None and default is not None and default.size == width:
            names, units = ", ".join(default.names), ", ".join(dict.fromkeys(default.units))
            logger.warning(
                "%s does not say what its actions are: they are taken as given, %s in %s",
                self.folder,
                names,
                units,
            )
            spec = default
        if spec is None:
            logger.warning(
                "%s does not say what its %d actions are: no unit, limits from its statistics; robot_rl.json "
                "beside it may say it",
                self.folder,
                width,
            )
            spec = unknown_action_spec(width, statistics, rate)
        if spec.size != width:
            raise CheckpointError(
                f"{self.folder} has {width} action dimensions, but {spec.size} are described"
            )
        return replace(spec, rate_hz=rate)


def unknown_action_spec(width: int, statistics: Mapping[str, NDArray[Any]], rate_hz: float) -> ActionSpec:
    """Return one group "action" without unit, its limits a tenth wider than the training data on each side.

    Args:
        width: A.
        statistics: of the actions, by name; without any the limits are -1 and 1.
        rate_hz: control rate.
    """
    low: NDArray[Any] = -np.ones(width)
    high: NDArray[Any] = np.ones(width)
    for first, second in _PAIRS:
        if first in statistics and second in statistics:
            low, high = statistics[first], statistics[second]
            break
    else:
        if "mean" in statistics and "std" in statistics:
            reach = _DEVIATIONS * statistics["std"]
            low, high = statistics["mean"] - reach, statistics["mean"] + reach
    margin = np.maximum(_MARGIN * (high - low), 1e-3)
    group = ActionGroup(
        "action",
        width,
        "absolute",
        "joint",
        low=tuple((low - margin).tolist()),
        high=tuple((high + margin).tolist()),
        names=tuple(str(index) for index in range(width)),
    )
    return ActionSpec((group,), rate_hz)
