"""A batch of transitions or chunks, as drawn from a replay."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from data.statistics import Scaling

type Arrays = dict[str, NDArray[Any]]


@dataclass(slots=True, eq=False)
class Batch:
    """B transitions; what was recorded, in its own units, unless it was normalised.

    Attributes:
        observations: By key, (B, ...).
        next_observations: By key, (B, ...), what was seen after the last step of the transition.
        action: (B, A), or (B, L, A) for chunks of L; past the chunk's end its last action is repeated.
        reward: (B,), discounted sum over the steps of the transition; NaN where rewards were not recorded and
            no critic learns from them.
        discount: (B,), what the value of the next observation is multiplied by: gamma to the number of
            steps, or 0 where the task ended.
        terminated: (B,), the task ended with the transition.
        truncated: (B,), the recording ended with it or could not go on, the task did not; it bootstraps.
        length: (B,), actions of the chunk that were executed within the transition; 1 without chunks.
        actor_length: (B,), actions of the chunk that may be imitated as one: of one source.
        steps: (B,), steps the transition reaches over, from 1 to n times L.
        columns: Further numbers of the first step by name, (B, ...).
        number: (B,), which transitions these are, in the order they came into the replay.
        weight: (B,), importance weights of a sampler that does not draw uniformly and corrects for it.
        imitation_action: Like `action`, what an actor imitates: what a person meant where one acted. None
            unless the replay was asked to hold it.
    """

    observations: dict[str, NDArray[Any]]
    next_observations: dict[str, NDArray[Any]]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    length: NDArray[np.int64]
    actor_length: NDArray[np.int64]
    steps: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]
    number: NDArray[np.int64]
    weight: NDArray[np.float32] | None = None
    imitation_action: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        """Number of transitions B."""
        return len(self.reward)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(B, L), True at the actions that were executed within the transition; L is 1 without chunks."""
        return self._until(self.length)

    @property
    def actor_mask(self) -> NDArray[np.bool_]:
        """(B, L), True at the actions that may be imitated: of the first one's source, without a break."""
        return self._until(self.actor_length)

    def normalised(self, scalings: Mapping[str, Scaling]) -> Batch:
        """The batch with some quantities normalised, as float32.

        Args:
            scalings: By observation key, or ``"action"``, also used for what is imitated. Observations are
                bounded where their dimension
                hardly moved in training; actions are not, since that could not be undone.

        Raises:
            KeyError: The batch lacks a quantity that is to be normalised.
        """
        unknown = sorted(set(scalings) - {"action", *self.observations})
        if unknown:
            raise KeyError(
                f"The batch has no {unknown} to normalise; it has {sorted(self.observations)} and 'action'."
            )
        keys = [key for key in scalings if key != "action"]
        now, after = dict(self.observations), dict(self.next_observations)
        for key in keys:
            now[key] = _normal(now[key], scalings[key], bounded=True)
            after[key] = _normal(after[key], scalings[key], bounded=True)
        action, imitated = self.action, self.imitation_action
        if "action" in scalings:
            action = _normal(action, scalings["action"], bounded=False)
            if imitated is not None:
                imitated = _normal(imitated, scalings["action"], bounded=False)
        return replace(
            self, observations=now, next_observations=after, action=action, imitation_action=imitated
        )

    def _until(self, length: NDArray[np.int64]) -> NDArray[np.bool_]:
        chunk = self.action.shape[1] if self.action.ndim == 3 else 1
        return np.asarray(np.arange(chunk) < length[:, None])


def equal(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same numbers, bit for bit."""
    return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(Batch))


def joined(parts: Sequence[Batch], observations: Arrays, next_observations: Arrays) -> Batch:
    """Several batches as one, whose observations lie in joined arrays already.

    Args:
        parts: The batches, alike in what they hold.
        observations: Those of all parts, by key, (B, ...).
        next_observations: Likewise.
    """
    merged: dict[str, Any] = {"observations": observations, "next_observations": next_observations}
    merged["columns"] = {
        key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns
    }
    for name in (field.name for field in fields(Batch)):
        if name not in merged and name not in {"weight", "imitation_action"}:
            merged[name] = np.concatenate([getattr(part, name) for part in parts])
    weight = None
    if any(part.weight is not None for part in parts):
        ones = [np.ones(len(part), np.float32) if part.weight is None else part.weight for part in parts]
        weight = np.concatenate(ones)
    imitated = [part.imitation_action for part in parts if part.imitation_action is not None]
    return Batch(**merged, weight=weight, imitation_action=np.concatenate(imitated) if imitated else None)


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401 - an array, arrays by key, or None
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _normal(values: NDArray[Any], scaling: Scaling, *, bounded: bool) -> NDArray[np.float32]:
    offset, scale = scaling.offset.astype(np.float32), scaling.scale.astype(np.float32)
    normal: NDArray[np.float32] = np.subtract(values, offset, dtype=np.float32)
    normal /= scale
    if bounded and np.isfinite(scaling.bound).any():
        bound = scaling.bound.astype(np.float32)
        np.clip(normal, -bound, bound, out=normal)
    return normal
