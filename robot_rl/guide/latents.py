"""The latent space in which guidance measures distances: one vector per observation, (B, D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from policies.context import TensorContext
from policies.policy import ChunkPolicy, PolicyError, require_chunk_policy
from robot_rl.learn.state_tensors import below

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jaxtyping import Float
    from numpy.typing import NDArray

    from policies.context import Context
    from policies.policy import Policy
    from policies.request import Observation

Kind = Literal["auto", "state", "features"]
_BATCH = 256
MOST_SPREADS = 5.0
"""Beyond it a dimension counts as that far off. One that hardly moves in demonstrations, such as the tilt of
an object that nobody dropped, would outweigh all others in distances and dynamics once it does move."""


@dataclass(frozen=True)
class LatentSource:
    """Where a latent comes from.

    Attributes:
        features: whether what the policy's own frozen encoder computes (its context) comes first.
        keys: vector observations that follow, newest step.
    """

    features: bool
    keys: tuple[str, ...]

    def raw(self, observation: Observation, context: Context | None) -> tuple[Float[Tensor, "B D"], int]:
        """Return latents in the units they come in, and how many of the first columns describe the scene.

        The rest is proprioception. Without features of the encoder every column counts as scene.

        Args:
            observation: as the policy reads it.
            context: what the policy made of it; None will do where no features are taken.

        Raises:
            PolicyError: if features are wanted, but the policy keeps what it encodes to itself.
            ValueError: if a key is missing.
        """
        columns = _context_columns(context) if self.features else []
        scene = sum(column.shape[1] for column in columns)
        for key in self.keys:
            value = observation.get(key)
            if not isinstance(value, Tensor):
                raise ValueError(f"the observation lacks {key!r}, which guidance reads")  # noqa: TRY004
            columns.append(value[:, -1].to(torch.float32).flatten(1))
        place = columns[0].device
        latent = torch.cat([column.to(place) for column in columns], dim=1)
        return latent, scene or latent.shape[1]


@torch.no_grad()
def encode_rows(
    policy: Policy, source: LatentSource, rows: Mapping[str, NDArray[Any]], task: str
) -> tuple[Float[Tensor, "T D"], int]:
    """Return the raw latents of every observation of a trajectory, on the CPU; see `LatentSource.raw`.

    Args:
        policy: whose encoder is used, if anything is taken of it.
        source: what is taken.
        rows: by key, each (T, ...), oldest first; before the first it repeats.
        task: in words.

    Raises:
        PolicyError: if features are wanted of a policy that keeps its encoder closed.
    """
    encoder = require_chunk_policy(policy, "reading features of its encoder") if source.features else None
    count = len(next(iter(rows.values())))
    history = (np.arange(count)[:, None] + np.arange(1 - policy.spec.observation_steps, 1)).clip(0)
    parts, scene = [], 0
    for begin in range(0, count, _BATCH):
        index = history[begin : begin + _BATCH]
        observation: dict[str, Any] = {
            key: torch.from_numpy(np.array(rows[key][index])) for key in policy.spec.features
        }
        if policy.spec.reads_task:
            observation["task"] = [task] * len(index)
        raw, scene = source.raw(observation, None if encoder is None else encoder.encode(observation))
        parts.append(raw.cpu())
    return torch.cat(parts), scene


def choose_source(policy: Policy, kind: Kind) -> LatentSource:
    """Say where the latents of a policy come from.

    Args:
        policy: whose observations are encoded.
        kind: "state": its vector observations; "features": what its encoder computes, and those; "auto":
            features if it reads pictures and opens its encoder, else the state.

    Raises:
        PolicyError: if there is nothing to take them from.
    """
    vectors = tuple(key for key, feature in policy.spec.features.items() if not feature.is_image)
    pictures = len(vectors) < len(policy.spec.features)
    opens = pictures and isinstance(policy, ChunkPolicy)
    features = kind == "features" or (kind == "auto" and opens)
    if not vectors and not features:
        raise PolicyError(f"policy {policy.spec.name!r} reads no vector observation: use latent features")
    return LatentSource(features, vectors)


def _context_columns(context: Context | None) -> list[Tensor]:
    """Every tensor of a context as (B, D): tokens are averaged."""
    if not isinstance(context, TensorContext):
        raise PolicyError(
            f"the policy encodes into a {type(context).__name__}, whose content is not known here: "
            "guide it with latent state"
        )
    columns = []
    for _, tensor in sorted(context.tensors.items()):
        if tensor.is_floating_point() and tensor.ndim in {2, 3}:
            columns.append(tensor if tensor.ndim == 2 else tensor.mean(dim=1))
    if not columns:
        raise PolicyError(
            f"the context holds {sorted(context.tensors)}, none of them features: use latent state"
        )
    return columns


class Latents:
    """Latents in units of their spread over the demonstrations.

    Deviation from LPB and ReGuide, which measure in raw features: in units of spread one guidance scale
    serves all policies.

    Args:
        source: where they come from.
        mean: (D,) over the frames of demonstrations.
        std: (D,), positive.
        scene: number of first columns that describe the scene.
    """

    def __init__(
        self, source: LatentSource, mean: Float[Tensor, " D"], std: Float[Tensor, " D"], scene: int
    ) -> None:
        self.source, self.mean, self.std, self.scene = source, mean, std, scene

    @classmethod
    def fit(cls, source: LatentSource, raw: Float[Tensor, "N D"], scene: int) -> Self:
        """Measure the spread over frames of demonstrations.

        Args:
            source: that gave them.
            raw: the frames.
            scene: see `LatentSource.raw`.
        """
        # A dimension that hardly moves in the demonstrations must not outweigh all others when it does.
        floor = (1e-3 * raw.abs().amax(0)).clamp(min=1e-6)
        return cls(source, raw.mean(0), torch.maximum(raw.std(0), floor), scene)

    @property
    def size(self) -> int:
        """D."""
        return len(self.mean)

    def scaled(self, raw: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Return raw latents in units of spread, each dimension within `MOST_SPREADS`."""
        return ((raw.to(self.mean) - self.mean) / self.std).clamp(-MOST_SPREADS, MOST_SPREADS)

    def encode(self, observation: Observation, context: Context | None) -> Float[Tensor, "B D"]:
        """Return the latents of B observations, without a graph."""
        with torch.no_grad():
            return self.scaled(self.source.raw(observation, context)[0])

    def payload(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON types."""
        return {"features": self.source.features, "keys": list(self.source.keys), "scene": self.scene}

    def tensors(self) -> dict[str, Tensor]:
        """Mean and spread."""
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` gave."""
        source = LatentSource(payload["features"], tuple(payload["keys"]))
        return cls(source, tensors["mean"], tensors["std"], payload["scene"])


def pack(latents: Latents, name: str, network: nn.Module) -> dict[str, Tensor]:
    """Tensors of latents and of a network that reads them, under names of their own."""
    named = {"latents": latents.tensors(), name: network.state_dict()}
    return {f"{part}.{key}": value for part, tensors in named.items() for key, value in tensors.items()}


def unpack[Network: nn.Module](
    payload: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, make: Callable[..., Network]
) -> tuple[Latents, Network]:
    """Rebuild latents and a network from what `pack` gave, on the device of the tensors, frozen.

    Args:
        payload: of the latents under ``latents``, sizes of the network under `name`.
        tensors: of both.
        name: of the network.
        make: called with the sizes.

    Raises:
        ValueError: if the weights do not fit.
    """
    latents = Latents.from_payload(payload["latents"], below(tensors, "latents."))
    network = make(**payload[name])
    try:
        network.load_state_dict(below(tensors, f"{name}."))
    except RuntimeError as error:
        raise ValueError(f"the weights of the {name} do not fit: {error}") from error
    return latents, network.requires_grad_(False).eval().to(latents.mean.device)
