"""What SmolVLA, pi0 and pi0.5 share: a prefix encoded once, and denoising steps that read its cache.

Images, text and (SmolVLA) state form the prefix. Its keys and values are computed once per chunk; each of the
denoising steps runs only the small action expert, which attends to them. LeRobot's time runs from 1 to 0 as
sigma does, so nothing is translated.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from data.formats.extras import require
from policies.lerobot.euler import EulerPolicy, outside_inference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.context import Context, TensorContext
    from policies.request import Condition, Observation

TOKENS = "observation.language.tokens"
TOKEN_MASK = "observation.language.attention_mask"  # noqa: S105 - a key of an observation, no secret
_KEYS, _VALUES = "keys.", "values."


class PrefixPolicy(EulerPolicy):
    """A policy whose context is a cache of keys and values."""

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

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Run the prefix through the language model once; see `ChunkPolicy.encode`."""
        self.check_condition(condition)
        with torch.no_grad():
            cache, tensors = self.encode_prefix(self.prepare(observation))
        for index, layer in enumerate(cache.layers):
            tensors |= {f"{_KEYS}{index}": layer.keys, f"{_VALUES}{index}": layer.values}
        return self.with_origin(outside_inference(tensors), observation)

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
        rows = self.check_rows(x, sigma, context)
        return self.denoise(x, sigma, rows, _cache(rows))

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
