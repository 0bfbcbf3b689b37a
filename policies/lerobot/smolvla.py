"""SmolVLA (Shukor et al. 2025) as LeRobot trains it: a small vision-language model and an action expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.lerobot.base import STATE
from policies.lerobot.prefix import TOKEN_MASK, TOKENS, PrefixPolicy, prefix_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from policies.context import Context, TensorContext
    from policies.request import Observation


class SmolVlaPolicy(PrefixPolicy):
    """A SmolVLA, frozen and opened. The state is part of the prefix."""

    @classmethod
    def adjust(cls, config: Any) -> None:  # noqa: ANN401 - a configuration of LeRobot
        """Take all weights from the checkpoint; refuse one that cannot be sampled."""
        if not config.use_cache:
            raise CheckpointError(
                "use_cache is false in config.json: LeRobot's SmolVLA cannot sample without its cache; "
                "set it to true"
            )
        config.load_vlm_weights = False

    @property
    def steps(self) -> int:
        """Denoising steps that the checkpoint takes."""
        return int(self.model.config.num_steps)

    def encode_prefix(self, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """Embed images, text and state, and run them through the language model."""
        masks = require("lerobot.policies.common.vla_utils", "vla", "SmolVLA")
        images, image_masks = self.model.prepare_images(batch)
        state = self.model.prepare_state({STATE: self._state(batch[STATE])})
        network = self.model.model
        embedded, mask, causal = network.embed_prefix(
            images, image_masks, batch[TOKENS], batch[TOKEN_MASK], state=state
        )
        _, cache = network.vlm_with_expert.forward(
            attention_mask=masks.make_att_2d_masks(mask, causal),
            position_ids=prefix_positions(mask),
            past_key_values=None,
            inputs_embeds=[embedded, None],
            use_cache=True,
        )
        return cache, {"mask": mask}

    def denoise(self, x: Tensor, sigma: Tensor, context: TensorContext, cache: Any) -> Tensor:  # noqa: ANN401 - a cache of transformers
        """Return LeRobot's velocity."""
        velocity: Tensor = self.model.model.denoise_step(
            prefix_pad_masks=context["mask"], past_key_values=cache, x_t=x, timestep=sigma
        )
        return velocity

    def decode(self, x: Tensor, context: Context) -> Tensor:
        """Return actions in robot units; see `ChunkPolicy.decode`."""
        if not self.model.config.adapt_to_pi_aloha:
            return super().decode(x, context)
        return super().decode(self.model._pi_aloha_encode_actions(x.clone()), context)  # noqa: SLF001 - LeRobot's only name for it

    def encode_action(self, action: Tensor, context: Context) -> Tensor:
        """Return robot-unit actions in the space of x."""
        x = super().encode_action(action, context)
        return self._aloha_inverse(x) if self.model.config.adapt_to_pi_aloha else x

    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk in the space of x; see `LeRobotPolicy.original`."""
        chunk = super().original(observation, noise, step_noise)
        return self._aloha_inverse(chunk) if self.model.config.adapt_to_pi_aloha else chunk

    def _aloha_inverse(self, action: Tensor) -> Tensor:
        inverse: Tensor = self.model._pi_aloha_encode_actions_inv(action.clone())  # noqa: SLF001 - as above
        return inverse

    def _state(self, state: Tensor) -> Tensor:
        """The state as the network reads it; LeRobot converts in place, which would change the caller's."""
        if not self.model.config.adapt_to_pi_aloha:
            return state
        converted: Tensor = self.model._pi_aloha_decode_state(state.clone())  # noqa: SLF001 - as above
        return converted
