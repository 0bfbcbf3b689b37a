"""Load a LeRobot checkpoint: configuration, weights, processors, and whether they belong together."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.device import check_device
from policies.lerobot.describe import describe
from policies.lerobot.families import family_of
from policies.lerobot.files import CONFIG, locate, read_json
from policies.lerobot.mapping import RobotMapping, read_mapping
from policies.lerobot.payload import read_payload
from policies.lerobot.settings import LeRobotSettings
from policies.lerobot.statistics import statistics_of
from policies.lerobot.training_data import compare_with_data
from policies.lerobot.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from policies.lerobot.base import LeRobotPolicy
    from policies.lerobot.processors import Processors

logger = logging.getLogger(__name__)


def open_checkpoint(
    source: str, device: torch.device | str = "cpu", settings: LeRobotSettings | None = None
) -> LeRobotPolicy:
    """Return a LeRobot policy, frozen and in evaluation mode.

    Args:
        source: a folder, or the id of a repository on the hub.
        device: where to put it.
        settings: what the caller adds to the checkpoint.

    Raises:
        CheckpointError: if anything is missing, of an unknown type, or does not fit together.
        ImportError: if LeRobot or what this policy needs of it is not installed.
    """
    settings = settings or LeRobotSettings()
    folder = locate(source, settings.revision)
    policy = assemble(folder, settings)
    load_weights(policy.model, folder, policy.rename_weights)
    policy.requires_grad_(requires_grad=False).eval().to(check_device(device))
    return policy


def assemble(folder: Path, settings: LeRobotSettings | None = None) -> LeRobotPolicy:
    """Return the policy of a checkpoint's folder; its weights are still to be loaded.

    Args:
        folder: with configuration, processors and statistics.
        settings: what the caller adds to the checkpoint.

    Raises:
        CheckpointError: see `open_checkpoint`.
    """
    settings = settings or LeRobotSettings()
    mapping = read_mapping(folder)
    local = dict(mapping.local) | {name: str(place) for name, place in settings.local.items()}
    kind, config = read_config(folder, local)
    _refuse_compiled(folder, config, settings)
    family = family_of(kind, config)
    family.adjust(config)
    features = _features(folder, family, config)
    processors = family.make_processors(folder, config, features, local)
    features = _before_renaming(features, processors)
    keys = _keys(folder, features, mapping, settings)
    on_robot = {keys.get(key, key): feature for key, feature in features.items()}
    data_rate = None if settings.data is None else compare_with_data(folder, on_robot, settings.data)
    spec = describe(
        folder,
        kind,
        family.layout(config),
        features=features,
        keys=keys,
        statistics=statistics_of(processors.unnormalizer).get("action", {}),
        mapping=mapping,
        settings=settings,
        supports=family.supports(config),
        reads_task=processors.reads_task,
        data_rate=data_rate,
    )
    policy_class = require("lerobot.policies.factory", "vla", "A LeRobot checkpoint").get_policy_class(kind)
    model = family.build_model(policy_class, config, folder)
    known = RobotMapping(spec.rate_hz, spec.action_spec, spec.features, keys, local)
    return family(model, processors, spec, keys, read_payload(folder, known))


def read_config(folder: Path, local: Mapping[str, str]) -> tuple[str, Any]:
    """Return the type of a checkpoint's policy and LeRobot's configuration of it, for the CPU.

    Args:
        folder: of the checkpoint.
        local: name on the hub -> folder that takes its place in the configuration.

    Raises:
        CheckpointError: if LeRobot 0.6.1 does not understand it.
    """
    entries = read_json(folder / CONFIG)
    kind = entries.pop("type", None)
    require("lerobot.policies", "vla", "A LeRobot checkpoint")
    base = require("lerobot.configs.policies", "vla", "A LeRobot checkpoint").PreTrainedConfig
    known = base.get_known_choices()
    if kind not in known:
        raise CheckpointError(
            f"{folder / CONFIG} has type {kind!r}; LeRobot knows {', '.join(sorted(known))}"
        )
    entries |= {"device": "cpu", "use_amp": False}
    entries |= {name: local[v] for name, v in entries.items() if isinstance(v, str) and v in local}
    draccus = require("draccus", "vla", "A LeRobot checkpoint")
    config_class = known[kind]
    unknown = sorted(entries.keys() - {field.name for field in fields(config_class)})
    if unknown:
        raise CheckpointError(
            f"{folder / CONFIG} has the entries {', '.join(unknown)}, which LeRobot 0.6.1 does not know: it "
            "was saved "
            "by another version"
        )
    try:
        return str(kind), draccus.decode(config_class, entries)
    except (draccus.utils.DecodingError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / CONFIG} does not make a {kind} policy: {error}") from error


def _refuse_compiled(folder: Path, config: Any, settings: LeRobotSettings) -> None:  # noqa: ANN401 - of LeRobot
    if not getattr(config, "compile_model", False):
        return
    if settings.compile_model is None:
        raise CheckpointError(
            f"{folder} sets compile_model: a compiled policy hides its denoising from guidance, and its "
            "first chunk "
            "takes minutes. Load it with compile_model=False, or set it to false in config.json"
        )
    config.compile_model = False


def _features(folder: Path, family: type[LeRobotPolicy], config: Any) -> dict[str, Any]:  # noqa: ANN401
    action = config.action_feature
    if action is None or len(action.shape) != 1:
        raise CheckpointError(f"{folder / CONFIG} describes no 'action' vector among its output_features")
    return {**family.inputs(config), "action": action}


def _before_renaming(features: Mapping[str, Any], processors: Processors) -> dict[str, Any]:
    original = {new: old for old, new in processors.renamed.items()}
    return {original.get(key, key): feature for key, feature in features.items()}


def _keys(
    folder: Path, features: Mapping[str, Any], mapping: RobotMapping, settings: LeRobotSettings
) -> dict[str, str]:
    """Key of the checkpoint -> robot key, of every observation."""
    said = dict(mapping.keys) | dict(settings.keys)
    if unknown := sorted(said.keys() - features.keys()):
        raise CheckpointError(f"{folder} has no {unknown}, which keys map; it has {sorted(features)}")
    return {key: said.get(key, key) for key in features if key != "action"}
