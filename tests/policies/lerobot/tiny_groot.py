"""A random GR00T N1.7 with a random Qwen3-VL inside, made without a download."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from lerobot.policies.groot.configuration_groot import GrootConfig
from lerobot.policies.groot.groot_n1_7 import GR00TN17, GR00TN17Config
from lerobot.policies.groot.processor_groot import make_groot_pre_post_processors
from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLVideoProcessor

from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.recipes import save
from tests.policies.lerobot.tiny_text import VOCABULARY, save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

BACKBONE = "nvidia/Cosmos-Reason2-2B"
"""Name on the hub that LeRobot's processor holds."""

_WIDTH = 32
_NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
_TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def save_backbone(folder: Path) -> Path:
    """Write configuration, tokenizer and image processors of a Qwen3-VL, as GR00T loads them by name."""
    tokenizer = save_tokenizer(folder, _NAMED, _TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _NAMED.items()}
    Qwen3VLConfig(
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
        vision_start_token_id=ids["vision_bos_token"],
        vision_end_token_id=ids["vision_eos_token"],
        tie_word_embeddings=True,
        text_config={
            "model_type": "qwen3_vl_text",
            "hidden_size": _WIDTH,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": VOCABULARY,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "rope_type": "default"},
            "rope_theta": 10000,
            "tie_word_embeddings": True,
        },
        vision_config={
            "model_type": "qwen3_vl",
            "deepstack_visual_indexes": [0],
            "depth": 1,
            "hidden_size": _WIDTH,
            "intermediate_size": 64,
            "num_heads": 2,
            "num_position_embeddings": 16,
            "out_hidden_size": _WIDTH,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    ).save_pretrained(folder)
    size = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    for processor in (Qwen2VLImageProcessor, Qwen3VLVideoProcessor):
        processor(size=size, patch_size=16, temporal_patch_size=2, merge_size=2).save_pretrained(folder)
    return folder


def save_base(folder: Path, backbone: Path) -> Path:
    """Write a GR00T N1.7 as NVIDIA publishes it."""
    attention = {"num_attention_heads": 2, "attention_head_dim": 16, "dropout": 0.2, "final_dropout": True}
    config = GR00TN17Config(
        model_name=str(backbone),
        select_layer=2,
        backbone_embedding_dim=_WIDTH,
        max_state_dim=tiny.PADDED,
        max_action_dim=tiny.PADDED,
        action_horizon=tiny.HORIZON,
        hidden_size=_WIDTH,
        input_embedding_dim=_WIDTH,
        max_seq_len=64,
        max_num_embodiments=12,
        num_inference_timesteps=tiny.STEPS,
        diffusion_model_cfg=attention
        | {
            "num_layers": 4,
            "norm_type": "ada_norm",
            "output_dim": _WIDTH,
            "interleave_self_attention": True,
            "positional_embeddings": None,
        },
        vl_self_attention_cfg=attention | {"num_layers": 1, "positional_embeddings": None},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GR00TN17(config, load_backbone_weights=False)
    for parameter in model.parameters():  # as they start, text and time would hardly matter
        if parameter.ndim > 1 and parameter.any():
            parameter.data *= 0.2 / parameter.data.std()
    model.save_pretrained(folder)
    return folder


def groups(positions: int, kind: str = "non_eef") -> dict[str, dict[str, Any]]:
    """Files that NVIDIA puts beside a base: an arm relative to its state per position, an absolute gripper.

    Args:
        positions: of the chunk that mean something.
        kind: type of the arm's action.
    """
    generator = torch.Generator().manual_seed(3)

    def limits(*shape: int) -> dict[str, list[Any]]:
        low = -1.0 - torch.rand(shape, generator=generator)
        spread = 1.0 + torch.rand(shape, generator=generator)
        values = {"min": low, "max": low + spread, "q01": low + 0.1, "q99": low + 0.9 * spread}
        values |= {"mean": low + spread / 2, "std": spread}
        return {name: value.tolist() for name, value in values.items()}

    arm = {"rep": "relative", "type": kind, "format": "default"}
    gripper = {"rep": "absolute", "type": "non_eef", "format": "default"}
    modalities = {
        "state": {"modality_keys": ["base", "arm", "gripper"], "delta_indices": [0]},
        "action": {
            "modality_keys": ["arm", "gripper"],
            "delta_indices": list(range(positions)),
            "action_configs": [arm, gripper],
        },
        "video": {"modality_keys": ["top"], "delta_indices": [0]},
    }
    statistics = {
        "state": {"base": limits(2), "arm": limits(2), "gripper": limits(1)},
        "action": {"arm": limits(2), "gripper": limits(1)},
        "relative_action": {"arm": limits(positions, 2)},
    }
    settings = {
        "modality_configs": {"new_embodiment": modalities},
        "max_action_horizon": tiny.HORIZON,
        "use_relative_action": True,
        "use_percentiles": True,
    }
    return {
        "processor_config.json": {"processor_kwargs": settings},
        "statistics.json": {"new_embodiment": statistics},
    }


def save_groot(folder: Path, beside: dict[str, dict[str, Any]] | None = None, **options: Any) -> Path:
    """Write a checkpoint into ``folder / "policy"``; base and backbone go beside it.

    Args:
        folder: made if missing.
        beside: JSON files of the base, such as `groups`.
        options: of `GrootConfig`, on top of the small ones.
    """
    base = save_base(folder / "base", save_backbone(folder / "backbone"))
    for name, content in (beside or {}).items():
        (base / name).write_text(json.dumps(content), encoding="utf-8")
    settings: dict[str, Any] = {
        "device": "cpu",
        "base_model_path": str(base),
        "chunk_size": tiny.HORIZON,
        "n_action_steps": tiny.HORIZON,
        "max_state_dim": tiny.PADDED,
        "max_action_dim": tiny.PADDED,
        "use_bf16": False,
        **tiny.features(),
    }
    return save(
        GrootConfig(**(settings | options)), folder / "policy", processors=make_groot_pre_post_processors
    )
