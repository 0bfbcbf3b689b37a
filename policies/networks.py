"""The networks of the native flow policy: velocity MLP, image encoder, hashed text encoder."""

from __future__ import annotations

import itertools
import math
import re
import zlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float


def time_features(sigma: Float[Tensor, " B"], frequencies: Float[Tensor, " F"]) -> Float[Tensor, "B 2F"]:
    """Return sines and cosines of the noise level.

    Args:
        sigma: noise levels in [0, 1].
        frequencies: in radians per unit of sigma.
    """
    phase = sigma[:, None] * frequencies
    return torch.cat((phase.sin(), phase.cos()), dim=1)


_LEAST_SIGMA = 0.1


class VelocityNetwork(nn.Module):
    """An MLP with residual layers from (x, sigma, context) to the velocity.

    The part of the first layer that reads the observation is `project`; it runs once per chunk, so that a
    denoising step costs only the layers that see x. The noise level enters twice: its mean over the chunk as
    sines and cosines, and its value at each position next to x, which lets sigma differ along the chunk.

    Args:
        horizon: H.
        width: Z, dimensions of x per position.
        context_size: length of the encoded observation.
        hidden: neurons per layer.
        layers: number of hidden layers.
        frequencies: number of sine/cosine pairs for the noise level.
        predicts_clean: whether the last layer says the clean chunk instead of the velocity.
    """

    frequencies: Tensor

    def __init__(
        self,
        horizon: int,
        width: int,
        context_size: int,
        *,
        hidden: int,
        layers: int,
        frequencies: int,
        predicts_clean: bool = False,
    ) -> None:
        super().__init__()
        self.predicts_clean = predicts_clean
        self.read_x = nn.Linear(horizon * (width + 1), hidden)
        self.read_time = nn.Linear(2 * frequencies, hidden, bias=False)
        self.project = nn.Linear(context_size, hidden, bias=False)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers - 1))
        self.write = nn.Linear(hidden, horizon * width)
        # From half a turn to 8 turns over the range of sigma, spaced geometrically.
        scale = torch.logspace(0, 4, frequencies, base=2.0) * math.pi
        self.register_buffer("frequencies", scale)

    def forward(
        self,
        x: Float[Tensor, "B H Z"],
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"],
        projected: Float[Tensor, "B D"],
    ) -> Float[Tensor, "B H Z"]:
        """Return the velocity at x.

        Args:
            x: noisy chunk.
            sigma: noise level per row, or per row and position.
            projected: `project` of the encoded observation.
        """
        rows, horizon, _ = x.shape
        if sigma.ndim == 1:
            mean, positions = sigma, sigma[:, None].expand(rows, horizon)
        else:
            mean, positions = sigma.mean(dim=1), sigma
        flat = torch.cat((x.reshape(rows, -1), positions), dim=1)
        hidden = self.read_x(flat) + self.read_time(time_features(mean, self.frequencies)) + projected
        hidden = functional.silu(hidden)
        for layer in self.layers:
            hidden = hidden + functional.silu(layer(hidden))
        output: Tensor = self.write(hidden).reshape(x.shape)
        if not self.predicts_clean:
            return output
        # v = (x - a) / sigma; the bound keeps the loss finite and does not bind with ten steps or fewer.
        return (x - output) / positions[..., None].clamp(min=_LEAST_SIGMA)


class ImageEncoder(nn.Module):
    """A small convolutional encoder trained from scratch, for one camera.

    Args:
        channels: of the image.
        size: (height, width) in pixels that images are resized to.
        features: length of the result.
    """

    def __init__(self, channels: int, size: tuple[int, int], features: int) -> None:
        super().__init__()
        self.size = size
        layers: list[nn.Module] = []
        for incoming, outgoing in ((channels, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(incoming, outgoing, 3, stride=2, padding=1), nn.SiLU()]
        self.convolutions = nn.Sequential(*layers)
        height, width = (math.ceil(side / 8) for side in size)
        self.read = nn.Linear(32 * height * width, features)

    def forward(self, images: Float[Tensor, "N H W C"]) -> Float[Tensor, "N F"]:
        """Return the features of images.

        Args:
            images: uint8, any size; area-averaged to `size` where that differs.
        """
        output: Tensor = self.read(self.convolutions(resize(images, self.size) / 255 - 0.5).flatten(1))
        return output


def resize(images: Tensor, size: tuple[int, int]) -> Float[Tensor, "N C H W"]:
    """Return images channel-first as float32 in 0 .. 255 at a new size, by area averaging.

    Args:
        images: (N, height, width, C) uint8.
        size: (height, width) wanted, in pixels.
    """
    first = images.movedim(-1, 1).to(torch.float32)
    if tuple(first.shape[-2:]) == tuple(size):
        return first
    return functional.interpolate(first, size=tuple(size), mode="area")


class TextEncoder(nn.Module):
    """A bag of hashed words and word pairs: works offline, knows no synonyms.

    Args:
        vocabulary: number of hash buckets.
        features: length of the result.
    """

    def __init__(self, vocabulary: int, features: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.EmbeddingBag(vocabulary, features, mode="mean")

    def forward(self, texts: Sequence[str]) -> Float[Tensor, "B F"]:
        """Return the mean embedding of each text.

        Args:
            texts: B task texts, each with at least one word.

        Raises:
            ValueError: if a text holds no word.
        """
        buckets = [text_buckets(text, self.vocabulary) for text in texts]
        device = self.embedding.weight.device
        flat = torch.tensor([bucket for row in buckets for bucket in row], device=device)
        ends = torch.tensor([len(row) for row in buckets]).cumsum(0)
        starts = torch.cat((torch.zeros(1, dtype=torch.long), ends[:-1])).to(device)
        output: Tensor = self.embedding(flat, starts)
        return output


def text_buckets(text: str, vocabulary: int) -> list[int]:
    """Return the hash buckets of a text's words and neighbouring word pairs, the same on every machine.

    Args:
        text: any case and punctuation.
        vocabulary: number of buckets.

    Raises:
        ValueError: if the text holds no word.
    """
    words = re.findall(r"\w+", text.lower())
    if not words:
        raise ValueError(f"the task text {text!r} holds no word; give the task in words")
    pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
    return [zlib.crc32(token.encode()) % vocabulary for token in (*words, *pairs)]
