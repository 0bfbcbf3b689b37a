"""Random pi0 and pi0.5 policies of a few 100,000 parameters, made without a download.

LeRobot builds both from sizes fixed in code, so they are made smaller while a model is built: the widths of
the language models, the vocabulary of 257,152 words, and the vision model.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from lerobot.policies.pi0 import modeling_pi0
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.processor import tokenizer_processor

from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.recipes import save
from tests.policies.lerobot.tiny_text import VOCABULARY, save_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKENIZER = "google/paligemma-3b-pt-224"
"""Name on the hub that LeRobot's processors of both families hold."""

_WIDTH = 32
_SIDE = 28
_VISION = {
    "hidden_size": _WIDTH,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 14,
    "projection_dim": _WIDTH,
}


def _shrunk(model_class: type) -> Callable[[Any], Any]:
    """Build a language model with a small vocabulary, and a small vision model where it has one."""

    def build(config: Any) -> Any:
        text = getattr(config, "text_config", config)
        text.vocab_size = VOCABULARY
        if text is not config:
            for name, value in _VISION.items():
                setattr(config.vision_config, name, value)
        return model_class(config)

    return build


@contextmanager
def small_sizes() -> Iterator[None]:
    """Let LeRobot build small pi0 and pi0.5 models inside."""
    with ExitStack() as stack:
        for module in (modeling_pi0, modeling_pi05):
            small = module.GemmaConfig(
                width=_WIDTH, depth=2, mlp_dim=64, num_heads=8, num_kv_heads=1, head_dim=8
            )
            stack.enter_context(mock.patch.object(module, "get_gemma_config", lambda _, small=small: small))
            for name in ("PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM"):
                stack.enter_context(mock.patch.object(module, name, _shrunk(getattr(module, name))))
        yield


def save_pi(folder: Path, kind: str, **options: Any) -> Path:
    """Write a checkpoint into ``folder / "policy"``, a tokenizer for it into ``folder / "tokenizer"``.

    Args:
        folder: made if missing.
        kind: "pi0" or "pi05".
        options: of LeRobot's configuration, on top of the small ones.
    """
    settings: dict[str, Any] = {
        "device": "cpu",
        "chunk_size": tiny.HORIZON,
        "n_action_steps": 4,
        "max_state_dim": tiny.PADDED,
        "max_action_dim": tiny.PADDED,
        "image_resolution": (_SIDE, _SIDE),
        "num_inference_steps": tiny.STEPS,
        **tiny.features(),
    }
    config = {"pi0": PI0Config, "pi05": PI05Config}[kind](**(settings | options))
    tokenizer = save_tokenizer(folder / "tokenizer")
    hub = mock.patch.object(tokenizer_processor.AutoTokenizer, "from_pretrained", return_value=tokenizer)
    with small_sizes(), hub:
        return save(config, folder / "policy")
