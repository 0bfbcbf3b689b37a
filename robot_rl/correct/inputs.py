"""The residual's input vector, built alike from the live loop and from recorded episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.correct.history import require_keys
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.features import Features
    from data.records import Episode
    from robot_rl.correct.corrector import CorrectorInput


@dataclass(frozen=True)
class InputConfig:
    """Which measurements the residual reads.

    Attributes:
        keys: Observation keys read at the present step.
        history_keys: Observation keys read at the past `offsets` too.
        offsets: Steps back, each at least 1.
        corrections: Whether past corrections are read at `offsets`.
        zeroed: Keys that are read as zeros, to measure what a sensor is worth. Never for deployment.
        texts: Of the tasks that are told apart, if there are several: one number each, behind the rest.
    """

    keys: tuple[str, ...]
    history_keys: tuple[str, ...] = ()
    offsets: tuple[int, ...] = (1, 2, 4, 8)
    corrections: bool = True
    zeroed: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something to read and that every offset lies in the past."""
        if not self.keys:
            raise ValueError("InputConfig.keys is empty; name at least one observation key.")
        if any(offset < 1 for offset in self.offsets):
            raise ValueError(f"InputConfig.offsets is {self.offsets}; offsets count steps back, from 1.")
        unknown = set(self.zeroed) - {*self.keys, *self.history_keys}
        if unknown:
            read = sorted({*self.keys, *self.history_keys})
            raise ValueError(f"zeroed names {sorted(unknown)}, which are not read; these are: {read}.")

    @property
    def length(self) -> int:
        """Past steps that must be kept."""
        return max(self.offsets, default=0)

    def width(self, features: Features, action_size: int) -> int:
        """Length D of the input vector.

        Raises:
            ValueError: A key is not among the robot's features.
        """
        for key in (*self.keys, *self.history_keys):
            if key not in features:
                raise ValueError(f"The residual reads {key!r}, which is not among {sorted(features)}.")
        size = sum(int(np.prod(features[key].shape)) for key in self.keys)
        past = sum(int(np.prod(features[key].shape)) for key in self.history_keys)
        numbers = size + len(self.offsets) * (past + action_size * self.corrections)
        return numbers + self._told.size

    def live(self, request: CorrectorInput) -> NDArray[np.float32]:
        """Input vectors of one control step, (B, D), from the loop.

        Raises:
            ValueError: A measurement is missing, or not finite; limits further on would turn it into an
                ordinary value. Or a row is told none of the known tasks.
        """
        history = request.history
        require_keys(request.observation, self.keys)
        for key in self.keys:
            if key not in self.zeroed and not np.isfinite(request.observation[key]).all():
                raise ValueError(f"The observation {key!r} holds values that are not finite.")
        parts = [self._flat(key, request.observation[key]) for key in self.keys]
        for offset in self.offsets:
            parts += [self._flat(key, history.observation(key, offset)) for key in self.history_keys]
            if self.corrections:
                parts.append(history.correction(offset).astype(np.float32))
        if self.texts:
            parts.append(self._told.one_hot(request.tasks or [""] * len(parts[0])))
        return np.concatenate(parts, axis=1)

    def recorded(self, episode: Episode) -> NDArray[np.float32]:
        """Input vectors of every observation of an episode, (T + 1, D), equal to what the loop saw.

        Raises:
            ValueError: A measurement is missing, or the episode's task is none of the known ones.
        """
        require_keys(episode.observations, (*self.keys, *self.history_keys))
        rows = np.arange(len(episode) + 1)
        corrections = executed_correction(episode)
        parts = [self._flat(key, episode.observations[key]) for key in self.keys]
        for offset in self.offsets:
            past = np.maximum(rows - offset, 0)
            parts += [self._flat(key, episode.observations[key][past]) for key in self.history_keys]
            if self.corrections:
                known = (rows >= offset)[:, None]
                parts.append(np.where(known, corrections[past], 0.0).astype(np.float32))
        if self.texts:
            parts.append(self._told.one_hot([episode.task] * len(rows)))
        return np.concatenate(parts, axis=1)

    @property
    def _told(self) -> TaskTexts:
        return TaskTexts(self.texts)

    def _flat(self, key: str, value: NDArray[Any]) -> NDArray[np.float32]:
        flat = np.asarray(value, np.float32).reshape(value.shape[0], -1)
        return np.zeros_like(flat) if key in self.zeroed else flat


def executed_correction(episode: Episode) -> NDArray[np.float64]:
    """Executed minus base action, (T + 1, A), robot units; the last row, not yet acted on, is zero."""
    correction = episode.action - episode.action_base
    return np.concatenate([correction, np.zeros((1, correction.shape[1]))])


def base_actions(episode: Episode, executed_steps: int, *, bootstrap: bool) -> NDArray[np.float32]:
    """Base action at every observation of an episode, (T + 1, A), robot units.

    The last row is the next element of the chunk in execution, or the first usable one of the chunk that was
    computed for the observation after the last step; the TD target of a truncated episode needs it.

    Args:
        episode: As the control loop recorded it.
        executed_steps: Actions of a chunk that are executed.
        bootstrap: Whether the last row is needed, as it is unless the task ended; else it is zero.

    Raises:
        ValueError: A step has no base action, or there is no plan for the last observation.
    """
    base = episode.action_base.astype(np.float32)
    if np.isnan(base).any():
        raise ValueError(f"Episode {episode.id} has steps without a base action.")
    after: NDArray[np.float32] = np.zeros((1, base.shape[1]), np.float32)
    if bootstrap:
        after = _planned_after(episode, executed_steps)[None].astype(np.float32)
    joined: NDArray[np.float32] = np.concatenate([base, after])
    return joined


def _first_action(episode: Episode) -> int:
    """Index in a chunk of the action for the observation it answers."""
    first_steps = {chunk.id: chunk.first_step for chunk in episode.chunks}
    planned = np.flatnonzero(episode.chunk_id >= 0)
    if not planned.size:
        raise ValueError(f"Episode {episode.id} has no step from a chunk; record it with the control loop.")
    row = int(planned[0])
    return int(episode.chunk_index[row]) - (row - first_steps[int(episode.chunk_id[row])])


def _planned_after(episode: Episode, executed_steps: int) -> NDArray[Any]:
    """Base action planned for the observation after the last step, (A,)."""
    steps, first = len(episode), _first_action(episode)
    ready = [chunk for chunk in episode.chunks if chunk.first_step + chunk.delay <= steps]
    if ready:
        follows = int(episode.chunk_id[-1]) == ready[-1].id
        index = int(episode.chunk_index[-1]) + 1 if follows else first + steps - ready[-1].first_step
        if index < first + ready[-1].delay + executed_steps:
            planned: NDArray[Any] = ready[-1].actions[index]
            return planned
    raise ValueError(
        f"No chunk of episode {episode.id} covers its last observation; record it with the control loop."
    )
