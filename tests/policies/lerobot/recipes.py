"""Small random LeRobot policies, made without a network and saved as LeRobot saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

RATE = 20.0
STATE, ENVIRONMENT, CAMERA, ACTION = (
    "observation.state",
    "observation.environment_state",
    "observation.images.front",
    "action",
)


def feature(kind: str, *shape: int) -> PolicyFeature:
    return PolicyFeature(FeatureType(kind), shape)


def statistics(config: Any, seed: int = 0) -> dict[str, dict[str, torch.Tensor]]:
    """Plausible statistics of every feature of a configuration."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for key, value in {**config.input_features, **config.output_features}.items():
        shape = (value.shape[0], 1, 1) if len(value.shape) == 3 else value.shape
        centre = 0.4 + 0.2 * torch.rand(shape, generator=generator)
        spread = 0.2 + 0.2 * torch.rand(shape, generator=generator)
        found[key] = {
            "mean": centre,
            "std": spread / 2,
            "min": centre - spread,
            "max": centre + 1.5 * spread,
            "q01": centre - spread,
            "q99": centre + spread,
            "q10": centre - spread / 2,
            "q90": centre + spread / 2,
        }
    return found


def save(config: Any, folder: Path, seed: int = 0, processors: Any = None) -> Path:
    """Build a policy with random weights and save it as LeRobot does; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = get_policy_class(config.type)(config)
        for parameter in model.parameters():  # networks that start at zero would hide mistakes
            if not parameter.any() and parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    make = processors or make_pre_post_processors
    for pipeline in make(config, dataset_stats=statistics(config, seed)):
        pipeline.save_pretrained(folder)
    return folder


def act_config(**changes: Any) -> ACTConfig:
    return ACTConfig(
        **{
            "device": "cpu",
            "input_features": {STATE: feature("STATE", 4), ENVIRONMENT: feature("ENV", 5)},
            "output_features": {ACTION: feature("ACTION", 3)},
            "chunk_size": 8,
            "n_action_steps": 6,
            "use_vae": False,
            "dim_model": 32,
            "n_heads": 2,
            "dim_feedforward": 64,
            "n_encoder_layers": 1,
            "n_decoder_layers": 1,
            "pretrained_backbone_weights": None,
            **changes,
        }
    )
