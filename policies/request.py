"""What a caller hands to a policy: the chunk request, and a batch of labelled chunks for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Observation = Mapping[str, "Tensor | Sequence[str]"]
"""Feature key -> Tensor (B, observation_steps, ...), oldest step first; ``task`` -> B strings.

Vectors are float32 in SI units. Images are uint8 (B, observation_steps, height, width, channels).
"""

Condition = str | Sequence[str | None] | None
"""A named condition for the whole batch, one per row (None: this row is unconditional), or none at all."""


def batch_size(observation: Observation) -> int:
    """Return the number of rows B of an observation.

    Args:
        observation: see `Observation`.

    Raises:
        ValueError: if the observation is empty or its entries disagree on the number of rows.
    """
    sizes = {key: len(value) for key, value in observation.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(
            f"the rows of the observation disagree or are missing: {sizes}; every entry needs the same B >= 1"
        )
    return next(iter(sizes.values()))


def observation_rows(observation: Observation, index: Sequence[int]) -> dict[str, Tensor | list[str]]:
    """Return the chosen rows of an observation, in the order given.

    Args:
        observation: see `Observation`.
        index: row numbers; a row may occur more than once.
    """
    rows = list(index)
    return {
        key: value[rows] if isinstance(value, Tensor) else [value[row] for row in rows]
        for key, value in observation.items()
    }


@dataclass(frozen=True)
class ChunkRequest:
    """Everything a policy or hook may know when a new chunk is asked for.

    Attributes:
        observation: see `Observation`; B rows.
        previous_chunk: (B, H, A) the *base* chunk each row executes at present, robot units, before any
            correction (a corrected one would be corrected twice). None before the first chunk.
        consumed: (B,) control steps of `previous_chunk` that were executed when the observation was taken.
        delay: (B,) control steps that will pass before the new chunk can act (0: synchronous).
        episode_ids: one name per row; a hook keys its per-episode state by it. Empty: rows are anonymous.
    """

    observation: Observation
    previous_chunk: Float[Tensor, "B H A"] | None = None
    consumed: Int[Tensor, " B"] | None = None
    delay: Int[Tensor, " B"] | None = None
    episode_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = batch_size(self.observation)
        given = {"previous_chunk": self.previous_chunk, "consumed": self.consumed, "delay": self.delay}
        for name, value in given.items():
            if value is not None and value.shape[0] != rows:
                raise ValueError(f"{name} has {value.shape[0]} rows but the observation has {rows}")
        if self.episode_ids and len(self.episode_ids) != rows:
            raise ValueError(f"{len(self.episode_ids)} episode ids for {rows} rows; give one per row or none")
        if self.previous_chunk is not None and self.consumed is None:
            raise ValueError("previous_chunk without consumed: say how many of its steps were executed")

    @property
    def rows_count(self) -> int:
        """The number of rows B."""
        return batch_size(self.observation)

    def rows(self, index: Sequence[int]) -> ChunkRequest:
        """Return the request for the chosen rows only.

        Args:
            index: row numbers, in the order wanted.
        """
        chosen = list(index)

        def pick(value: Tensor | None) -> Tensor | None:
            return None if value is None else value[chosen]

        return replace(
            self,
            observation=observation_rows(self.observation, chosen),
            previous_chunk=pick(self.previous_chunk),
            consumed=pick(self.consumed),
            delay=pick(self.delay),
            episode_ids=tuple(self.episode_ids[row] for row in chosen) if self.episode_ids else (),
        )


@dataclass(frozen=True)
class ActionBatch:
    """Observed chunks to imitate.

    Attributes:
        observation: see `Observation`; B rows.
        action: (B, H, A) in robot units; entries outside `mask` may hold anything finite.
        mask: (B, H) True where the step was really recorded; None: everywhere.
        condition: see `Condition`.
    """

    observation: Observation
    action: Float[Tensor, "B H A"]
    mask: Bool[Tensor, "B H"] | None = None
    condition: Condition = None

    def __post_init__(self) -> None:
        rows = batch_size(self.observation)
        if self.action.ndim != 3 or self.action.shape[0] != rows:
            raise ValueError(
                f"action has shape {tuple(self.action.shape)}; expected ({rows}, H, A) like the observation"
            )
        if self.mask is not None and (
            self.mask.shape != self.action.shape[:2] or self.mask.dtype != torch.bool
        ):
            raise ValueError(
                f"mask is {self.mask.dtype} {tuple(self.mask.shape)}; expected bool "
                f"{tuple(self.action.shape[:2])}"
            )
