"""What pi0 and pi0.5 share in LeRobot: PaliGemma encodes the prefix, a small Gemma denoises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.formats.extras import require
from policies.lerobot.prefix import TOKEN_MASK, TOKENS, PrefixPolicy, prefix_positions

if TYPE_CHECKING:
    from torch import Tensor


_PREFIX = "model."


class OpenPiPolicy(PrefixPolicy):
    """A policy of the openpi kind, frozen and opened."""

    @classmethod
    def rename_weights(cls, model: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:  # noqa: ANN401 - of LeRobot
        """Return tensors under LeRobot's names; openpi's lack a prefix, and its head is the embedding."""
        fixed = model._fix_pytorch_state_dict_keys(tensors, model.config)  # noqa: SLF001 - LeRobot's only name for it
        return {name if name.startswith(_PREFIX) else _PREFIX + name: value for name, value in fixed.items()}

    @property
    def steps(self) -> int:
        """Denoising steps that the checkpoint takes."""
        return int(self.model.config.num_inference_steps)

    def encode_prefix(self, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """Embed images and text, and run them through PaliGemma."""
        masks = require("lerobot.policies.common.vla_utils", "vla", "pi0")
        images, image_masks = self.model._preprocess_images(batch)  # noqa: SLF001 - LeRobot's only name for it
        network = self.model.model
        embedded, mask, causal = network.embed_prefix(images, image_masks, batch[TOKENS], batch[TOKEN_MASK])
        language = network.paligemma_with_expert
        # The additive mask of four dimensions is only understood by this implementation of attention.
        language.paligemma.model.language_model.config._attn_implementation = "eager"  # noqa: SLF001 - as LeRobot
        _, cache = language.forward(
            attention_mask=masks.prepare_attention_masks_4d(masks.make_att_2d_masks(mask, causal)),
            position_ids=prefix_positions(mask),
            past_key_values=None,
            inputs_embeds=[embedded, None],
            use_cache=True,
        )
        return cache, {"mask": mask}
