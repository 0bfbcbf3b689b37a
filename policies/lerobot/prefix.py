"""What the policies with a language model share: a prefix encoded once, and Euler steps that read its cache.

Images, text and (SmolVLA) state form the prefix. Its keys and values are computed once per chunk; each of the
denoising steps runs only the small action expert, which attends to them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.context import TensorContext
from policies.lerobot.base import LeRobotChunkPolicy
from policies.lerobot.describe import Layout
from policies.lerobot.padding import keep_padding
from policies.policy import Evaluation, Supports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.context import Context
    from policies.request import Condition, Observation

TOKENS = "observation.language.tokens"
TOKEN_MASK = "observation.language.attention_mask"  # noqa: S105 - a key of an observation, no secret
_KEYS, _VALUES = "keys.", "values."


class PrefixPolicy(LeRobotChunkPolicy):
    """A flow-matching policy whose time runs from 1 to 0 as sigma does, so that nothing is translated.

    The padded dimensions of x follow the network alone: what a hook does to them is undone after each step.
    """

    @classmethod
    def layout(cls, config: Any) -> Layout:  # noqa: ANN401 - a configuration of LeRobot
        """Return how the policy cuts time: one observation, actions from now on."""
        width = int(config.action_feature.shape[0])
        if width > config.max_action_dim:
            raise CheckpointError(
                f"the actions have {width} dimensions, but max_action_dim is {config.max_action_dim}"
            )
        return Layout(1, config.chunk_size, config.n_action_steps, 0, config.max_action_dim)

    @classmethod
    def supports(cls, config: Any) -> Supports:  # noqa: ANN401 - a configuration of LeRobot
        """Return what the policy offers: everything but conditions and a sigma per position."""
        del config
        return Supports(noise=True, velocity=True, gradients=True)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Denoising steps that the checkpoint takes."""

    @abstractmethod
    def encode_prefix(self, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """Return the prefix's cache of keys and values, and what else the steps need, row by row.

        Args:
            batch: a prepared observation.
        """

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor, context: TensorContext, cache: Any) -> Tensor:  # noqa: ANN401 - a cache of transformers
        """Return LeRobot's velocity.

        Args:
            x: (B, H, Z) noisy chunk.
            sigma: (B,) noise level.
            context: of these rows.
            cache: a copy of the prefix's cache that may be changed.
        """

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: the policy is frozen, and neither dropout nor checkpointing is wanted."""
        del mode
        return super().train(mode=False)

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Run the prefix through the language model once; see `ChunkPolicy.encode`."""
        if condition is not None:
            raise ValueError(
                f"policy {self._spec.name!r} takes no condition; its text is the observation's 'task'"
            )
        with torch.no_grad():
            cache, tensors = self.encode_prefix(self.prepare(observation))
        for index, layer in enumerate(cache.layers):
            tensors |= {f"{_KEYS}{index}": layer.keys, f"{_VALUES}{index}": layer.values}
        # A tensor made under inference_mode cannot enter a graph later; its clone can.
        plain = {name: value.clone() if value.is_inference() else value for name, value in tensors.items()}
        return self.with_origin(plain, observation)

    def velocity(
        self,
        x: Float[Tensor, "B H Z"],
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"],
        context: Context,
    ) -> Float[Tensor, "B H Z"]:
        """Return v = eps - a at x; see `ChunkPolicy.velocity`.

        Raises:
            ValueError: if sigma is not one level per row, or the rows of x are not those of the context.
        """
        assert isinstance(context, TensorContext)
        rows = context.batch_size
        if tuple(sigma.shape) != (rows,) or x.shape[0] != rows:
            raise ValueError(
                f"x has shape {tuple(x.shape)} and sigma {tuple(sigma.shape)}; policy {self._spec.name!r} "
                f"expects {(rows, *self._spec.noise_shape)} and one level per row, ({rows},)"
            )
        return self.denoise(x, sigma, context, _cache(context))

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return LeRobot's times, to the bit: 1 - i / steps computed in double, then rounded.

        Args:
            steps: number of steps; None: as the checkpoint says.
        """
        count = self.steps if steps is None else steps
        if count < 1:
            raise ValueError(f"steps is {count}; at least one denoising step is needed")
        width = -1.0 / count
        levels = [1.0 + index * width for index in range(count)]
        return torch.tensor([*levels, 0.0], dtype=torch.float32, device=self.device)

    def native_step(
        self,
        index: int,
        x: Float[Tensor, "B H Z"],
        velocity: Float[Tensor, "B H Z"],
        *,
        sigmas: Float[Tensor, " N"],
        evaluation: Evaluation,
        noise: Float[Tensor, "B H Z"] | None = None,
    ) -> Tensor:
        """Take one Euler step of constant width, the padded dimensions as the network alone would."""
        del index, noise
        x = keep_padding(x, evaluation.x, self._spec.action_size)
        velocity = keep_padding(velocity, evaluation.velocity, self._spec.action_size)
        return x + (-1.0 / (len(sigmas) - 1)) * velocity

    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk; see `LeRobotPolicy.original`."""
        del step_noise
        batch = {key: value.clone() for key, value in self.prepare(observation).items()}
        chunk: Tensor = self.model.predict_action_chunk(batch, noise=noise)
        return chunk


def prefix_positions(mask: Tensor) -> Tensor:
    """Return the positions of the prefix's tokens, (B, L); padded tokens repeat the one before.

    Args:
        mask: (B, L) True for tokens that are there.
    """
    return torch.cumsum(mask, dim=1) - 1


def _cache(context: TensorContext) -> Any:  # noqa: ANN401 - a cache of transformers
    """A cache over the context's own tensors, which stay as they are: appending makes new ones."""
    utils = require("transformers.cache_utils", "vla", "A policy with a language model")
    cache = utils.DynamicCache()
    for index in range(sum(name.startswith(_KEYS) for name in context.tensors)):
        layer = utils.DynamicLayer()
        keys, values = context[f"{_KEYS}{index}"], context[f"{_VALUES}{index}"]
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache
