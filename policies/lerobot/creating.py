"""New LeRobot checkpoints: random weights to train, and what training made of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from data.features import Feature
from data.formats.extras import require
from policies.lerobot.files import POSTPROCESSOR, PREPROCESSOR, TRAINED, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from data.statistics import Scaling
    from policies.lerobot.base import LeRobotPolicy
    from policies.lerobot.mapping import RobotMapping

_KINDS = {"observation.state": "STATE", "observation.environment_state": "ENV", "action": "ACTION"}
_WHAT = "Training a policy of LeRobot"


def new_config(kind: str, features: Mapping[str, Feature], actions: int, **options: Any) -> Any:  # noqa: ANN401
    """Return LeRobot's configuration of a policy that is trained from random weights, on the CPU.

    Args:
        kind: LeRobot's type of policy, such as "diffusion".
        features: key -> Feature of the observations; vectors must be among those LeRobot has names for.
        actions: A.
        **options: of LeRobot's configuration.
    """
    factory = require("lerobot.policies.factory", "vla", _WHAT)
    modes = require("lerobot.configs", "vla", _WHAT).NormalizationMode
    return factory.make_policy_config(
        kind,
        # LeRobot's own default leaves the environment state as it is.
        normalization_mapping={
            "VISUAL": modes.MEAN_STD,
            "STATE": modes.MIN_MAX,
            "ENV": modes.MIN_MAX,
            "ACTION": modes.MIN_MAX,
        },
        input_features=_policy_features(features),
        output_features=_policy_features({"action": Feature((actions,), "float32")}),
        device="cpu",
        push_to_hub=False,
        pretrained_backbone_weights=None,
        **options,
    )


def _policy_features(features: Mapping[str, Feature]) -> dict[str, Any]:
    """LeRobot's description of features: images with the channels first, vectors by their key."""
    types = require("lerobot.configs.types", "vla", _WHAT)
    found = {}
    for key, feature in features.items():
        kind, shape = _KINDS.get(key, "STATE"), feature.shape
        if feature.is_image:
            kind, shape = "VISUAL", (shape[2], *shape[:2])
        found[key] = types.PolicyFeature(types.FeatureType(kind), shape)
    return found


def statistics_of_scaling(scaling: Scaling) -> dict[str, NDArray[np.float32]]:
    """Return statistics from which LeRobot's formulas make this scaling, by min and max or mean and std.

    Args:
        scaling: guarded, see `data.statistics.scaling`.
    """
    offset, scale = scaling.offset, scaling.scale
    values = {"mean": offset, "std": scale, "min": offset - scale, "max": offset + scale}
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


def create(
    folder: Path,
    config: Any,  # noqa: ANN401 - a configuration of LeRobot
    statistics: Mapping[str, Mapping[str, NDArray[np.float32]]],
    mapping: RobotMapping,
    *,
    seed: int = 0,
) -> Path:
    """Write a checkpoint with random weights.

    Args:
        folder: where; made if missing.
        config: LeRobot's configuration of the policy.
        statistics: feature -> name -> value, for normalisation.
        mapping: units, names and rate.
        seed: of the weights.

    Returns:
        The folder.
    """
    factory = require("lerobot.policies.factory", "vla", _WHAT)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory.get_policy_class(config.type)(config)
    model.save_pretrained(folder)
    for pipeline in factory.make_pre_post_processors(
        config, dataset_stats={k: dict(v) for k, v in statistics.items()}
    ):
        pipeline.save_pretrained(folder)
    mapping.write(folder)
    return folder


def save_trained(policy: LeRobotPolicy, origin: Path, run: Path) -> Path:
    """Write a trained policy below a run, as LeRobot names it; it appears whole or not at all.

    Args:
        policy: whose weights are written.
        origin: checkpoint it was opened from; its configuration, processors and mapping are copied.
        run: folder of the run.

    Returns:
        The checkpoint's folder, which LeRobot's ``from_pretrained`` reads, and `policies.loading.load` too.
    """
    target = run / TRAINED
    part = Path(tempfile.mkdtemp(prefix=f".{TRAINED}-", dir=run))
    try:
        for file in _but_weights(origin):
            shutil.copy2(file, part / file.name)
        policy.model.save_pretrained(part)
        if target.exists():
            shutil.rmtree(target)
        part.chmod(0o755)
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _but_weights(origin: Path) -> Iterator[Path]:
    assert (origin / PREPROCESSOR).is_file()
    assert (origin / POSTPROCESSOR).is_file()
    return (file for file in origin.iterdir() if file.is_file() and file.name != WEIGHTS)
