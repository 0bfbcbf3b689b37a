"""A random SmolVLA of 200,000 parameters, made without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.recipes import save
from tests.policies.lerobot.tiny_text import VOCABULARY, save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

_SIDE = 32
_NAMED = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "end_of_utterance_token": "<end_of_utterance>",
    "global_image_token": "<global-img>",
}


def save_backbone(folder: Path) -> Path:
    """Write configuration, tokenizer and image processor of a SmolVLM, as SmolVLA loads them by name."""
    tokenizer = save_tokenizer(folder, _NAMED)
    SmolVLMConfig(
        pad_token_id=0,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": 8,
        },
        text_config={
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": VOCABULARY,
            "pad_token_id": 0,
        },
    ).save_pretrained(folder)
    size = {"longest_edge": _SIDE}
    SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(size=size, max_image_size=size),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(),
    ).save_pretrained(folder)
    return folder


def save_smolvla(folder: Path, **options: Any) -> Path:
    """Write a checkpoint into ``folder / "policy"``, its backbone beside it.

    Args:
        folder: made if missing.
        options: of `SmolVLAConfig`, on top of the small ones.
    """
    settings: dict[str, Any] = {
        "device": "cpu",
        "vlm_model_name": str(save_backbone(folder / "backbone")),
        "num_vlm_layers": 2,
        "expert_width_multiplier": 0.5,
        "chunk_size": tiny.HORIZON,
        "n_action_steps": 4,
        "max_state_dim": tiny.PADDED,
        "max_action_dim": tiny.PADDED,
        "resize_imgs_with_padding": (_SIDE, _SIDE),
        "num_steps": tiny.STEPS,
        **tiny.features(),
    }
    return save(SmolVLAConfig(**(settings | options)), folder / "policy")
