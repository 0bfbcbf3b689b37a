"""What a robomimic checkpoint says of its keys, shapes, units and actions, and what its caller adds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from data.formats import robomimic_names as names
from hardware.action_spec import ActionSpec
from policies.checkpoint import CheckpointError
from policies.lerobot.describe import unknown_action_spec
from policies.policy import PolicySpec, Supports

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.robomimic_checkpoint import RobomimicCheckpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RobomimicSettings:
    """What a caller may say of a robomimic checkpoint.

    Attributes:
        keys: our key -> robomimic's, where they are not those of `data.formats.robomimic_names`.
        rate_hz: control rate; wins over the checkpoint's environment.
        default_features: units and names of observations, taken where shape and type agree.
        default_action_spec: taken where the checkpoint's environment says nothing of its actions.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    rate_hz: float | None = None
    default_features: Mapping[str, Feature] = field(default_factory=dict)
    default_action_spec: ActionSpec | None = None


def action_scale(checkpoint: RobomimicCheckpoint) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return offset and scale, each (A,), from the network's actions to the robot's.

    Raises:
        CheckpointError: the statistics do not fit, or actions are turned besides.
    """
    size, stats = checkpoint.action_size, checkpoint.action_stats
    if stats is None:
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    keys = list(checkpoint.config.train.action_keys)
    turned = [key for key in keys if checkpoint.config.train.action_config[key].get("format") == "rot_6d"]
    if turned:
        raise CheckpointError(f"{checkpoint.path} turns {turned} from six numbers to angles: not supported")
    offset, scale = (np.concatenate([stats[k][n].reshape(-1) for k in keys]) for n in ("offset", "scale"))
    if offset.shape != (size,) or scale.shape != (size,):
        raise CheckpointError(f"{checkpoint.path}: its action statistics have {offset.shape}, not ({size},)")
    return offset, scale


def named_keys(
    checkpoint: RobomimicCheckpoint, settings: RobomimicSettings, modalities: Mapping[str, str]
) -> dict[str, str]:
    """Return our key -> robomimic's, of what the network reads.

    Args:
        checkpoint: what was read.
        settings: may map keys.
        modalities: robomimic's key -> such as "low_dim" or "rgb".

    Raises:
        CheckpointError: a mapping names no key, or the network reads other things than numbers and pictures.
    """
    ours = {theirs: key for key, theirs in settings.keys.items()}
    if unknown := sorted(set(ours) - set(checkpoint.shapes)):
        raise CheckpointError(
            f"{checkpoint.path} has no {unknown}, to which keys are mapped; it has "
            f"{', '.join(sorted(checkpoint.shapes))}"
        )
    strange = {key: modalities[key] for key in checkpoint.shapes if modalities[key] not in {"low_dim", "rgb"}}
    if strange:
        raise CheckpointError(f"{checkpoint.path} reads {strange}; only low_dim and rgb are supported")
    keys = {key: names.observation_key(key, modalities[key] == "rgb") for key in checkpoint.shapes}
    return {ours.get(key, named): key for key, named in keys.items()}


def describe(
    checkpoint: RobomimicCheckpoint,
    settings: RobomimicSettings,
    named: Mapping[str, str],
    algo: Any,  # noqa: ANN401 - of robomimic
) -> PolicySpec:
    """Return the fixed facts of a checkpoint's policy.

    Args:
        checkpoint: what was read.
        settings: what the caller says.
        named: see `named_keys`.
        algo: robomimic's algorithm.

    Raises:
        CheckpointError: nothing says the control rate.
    """
    features = {ours: _feature(checkpoint, settings, ours, theirs) for ours, theirs in named.items()}
    action_spec = _action_spec(checkpoint, settings)
    diffusion = type(algo).__name__ == "DiffusionPolicyUNet"
    horizon = algo.algo_config.horizon if diffusion else None
    return PolicySpec(
        name=f"robomimic {checkpoint.algo_name}",
        features=features,
        action_spec=action_spec,
        observation_steps=horizon.observation_horizon if horizon else 1,
        horizon=horizon.prediction_horizon if horizon else 1,
        executed_steps=horizon.action_horizon if horizon else 1,
        first_action=horizon.observation_horizon - 1 if horizon else 0,
        rate_hz=action_spec.rate_hz,
        supports=Supports(noise=diffusion),
    )


def _feature(checkpoint: RobomimicCheckpoint, settings: RobomimicSettings, ours: str, theirs: str) -> Feature:
    shape = checkpoint.shapes[theirs]
    picture = len(shape) == 3  # the network's shape is (channels, height, width)
    row = np.empty((*shape[1:], shape[0]), np.uint8) if picture else np.empty(shape, np.float32)
    own, other = names.feature(theirs, row, checkpoint.env_metadata), settings.default_features.get(ours)
    agrees = other is not None and (other.shape, other.dtype) == (own.shape, own.dtype)
    return other if agrees and other is not None else own


def _action_spec(checkpoint: RobomimicCheckpoint, settings: RobomimicSettings) -> ActionSpec:
    size, default = checkpoint.action_size, settings.default_action_spec
    known = names.action_spec(checkpoint.env_metadata, size)
    spec = ActionSpec.from_json(known) if known else None
    if spec is None and default is not None and default.size == size:
        logger.warning("%s does not say what its actions are: the task's are taken", checkpoint.path)
        spec = default
    rates = (settings.rate_hz, names.control_rate(checkpoint.env_metadata), spec and spec.rate_hz)
    rate = next((float(rate) for rate in rates if rate), None)
    if rate is None:
        raise CheckpointError(f"{checkpoint.path} does not say its control rate: give rate_hz=HZ")
    if spec is None:
        logger.warning("%s does not say what its %d actions are: no unit", checkpoint.path, size)
        spec = unknown_action_spec(size, {}, rate)
    return replace(spec, rate_hz=rate)
