"""Small random LeRobot policies, made without a network and saved as LeRobot saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
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


def diffusion_config(**changes: Any) -> DiffusionConfig:
    return DiffusionConfig(
        **{
            "device": "cpu",
            "n_obs_steps": 2,
            "horizon": 8,
            "n_action_steps": 4,
            "down_dims": (16, 32),
            "diffusion_step_embed_dim": 16,
            "num_train_timesteps": 20,
            "num_inference_steps": 5,
            "noise_scheduler_type": "DDIM",
            "pretrained_backbone_weights": None,
            "input_features": {STATE: feature("STATE", 4), ENVIRONMENT: feature("ENV", 6)},
            "output_features": {ACTION: feature("ACTION", 2)},
            **changes,
        }
    )


def cameras(*names: str, height: int = 40, width: int = 48) -> dict[str, PolicyFeature]:
    return {f"observation.images.{name}": feature("VISUAL", 3, height, width) for name in names}


def tokenizer(folder: Path) -> Path:
    """Save a tokenizer of a few words that `transformers.AutoTokenizer` reads; returns the folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<unk>", "do", "task", *map(str, range(10)), "put", "the", "peg", "in", "hole"]
    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", eos_token="<pad>"
    ).save_pretrained(folder)
    return folder


def clip(folder: Path) -> Path:
    """Save a tiny CLIP with its tokenizer; returns the folder, whose name must contain "clip"."""
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    text = {**small, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 0, "bos_token_id": 1}
    vision = {**small, "image_size": 32, "patch_size": 8}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)).save_pretrained(
            folder
        )
    return tokenizer(folder)


def multi_task_dit_config(parts: Path, **changes: Any) -> Any:
    """A tiny multi-task DiT whose encoders and tokenizer are the folder `clip` made."""
    from lerobot.policies.multi_task_dit.configuration_multi_task_dit import MultiTaskDiTConfig

    return MultiTaskDiTConfig(
        **{
            "device": "cpu",
            "n_obs_steps": 2,
            "horizon": 8,
            "n_action_steps": 4,
            "hidden_dim": 32,
            "num_layers": 1,
            "num_heads": 2,
            "timestep_embed_dim": 16,
            "num_train_timesteps": 20,
            "num_inference_steps": 4,
            "num_integration_steps": 4,
            "noise_scheduler_type": "DDIM",
            "image_crop_shape": (32, 32),
            "tokenizer_max_length": 12,
            "vision_encoder_name": str(parts),
            "text_encoder_name": str(parts),
            "input_features": {STATE: feature("STATE", 4), **cameras("front")},
            "output_features": {ACTION: feature("ACTION", 2)},
            **changes,
        }
    )
