"""A tokenizer without a download: one token per byte, saved as a folder that transformers loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 320
"""Rows that an embedding needs for every token, with some to spare."""


def save_tokenizer(
    folder: Path, named: dict[str, str] | None = None, chat_template: str | None = None
) -> PreTrainedTokenizerFast:
    """Write the tokenizer.

    Args:
        folder: made if missing.
        named: attribute of the tokenizer -> special token, such as ``image_token``.
        chat_template: for processors that render messages.
    """
    named = named or {}
    special = ["<pad>", "<bos>", "<eos>", *named.values()]
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=named,
    )
    if chat_template is not None:
        fast.chat_template = chat_template
    fast.save_pretrained(folder)
    return fast
