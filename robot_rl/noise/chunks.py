"""From episodes to the transitions of the chunk MDP: one decision per chunk, cut where a person took over."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.labels import label
from data.records import Source
from data.replay import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from data.labels import Labels
    from data.records import Episode

NOISE = "noise"
"""Column of the noise that a chunk came from."""


@dataclass(frozen=True, eq=False)
class ChunkData:
    """An episode as the chunk MDP sees it.

    Attributes:
        observations: By key, each (T + 1, ...), of the whole episode.
        reward: (T,).
        ends: (T,), the task ended with this step.
    """

    observations: Mapping[str, NDArray[Any]]
    reward: NDArray[np.float64]
    ends: NDArray[np.bool_]


def chunk_recordings(
    episode: Episode,
    data: ChunkData,
    *,
    noise_shape: tuple[int, int] | None,
    columns: Mapping[str, NDArray[Any]] | None = None,
) -> Iterator[Recording]:
    """Cut an episode into recordings for a replay whose chunk is the base's executed steps.

    Each is a run of one source without a break (the boundary table's rule ``hil-serl``: every executed action
    is learned from, a takeover and a time limit bootstrap), so that no transition mixes what the policy did
    with what a person did. With noise, a transition starts where a chunk of the policy starts; without, at
    every step, since what was executed from there on is a chunk as good as any.

    Args:
        episode: As the control loop recorded it.
        data: Its arrays.
        noise_shape: (H, Z) of the noise to hold beside a transition; None where only actions count.
        columns: Further numbers of each step by name, each (T, ...).
    """
    labels = label(episode, "hil-serl")
    starts, held = labels.critic, dict(columns or {})
    if noise_shape is not None:
        started, noise = chunk_starts(episode, noise_shape)
        starts, held = starts & started, {**held, NOISE: noise}
    for number, (first, after) in enumerate(_runs(labels)):
        steps, rows = slice(first, after), slice(first, after + 1)
        yield Recording(
            observations={key: value[rows] for key, value in data.observations.items()},
            action=episode.action[steps],
            reward=data.reward[steps],
            ends=data.ends[steps],
            continuous=labels.continuous[steps],
            starts=starts[steps],
            columns={name: value[steps] for name, value in held.items()},
            id=f"{episode.id}#{number}",
            task=episode.task,
        )


def chunk_starts(
    episode: Episode, noise_shape: tuple[int, int]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Steps at which the policy begins to execute a chunk, (T,), and its noise there, (T, H, Z), else zero.

    A chunk that was computed while the robot moved on (with a delay) was chosen for an earlier observation
    and is left out.

    Raises:
        ValueError: A chunk has no noise of that shape.
    """
    steps = len(episode)
    started, noise = np.zeros(steps, bool), np.zeros((steps, *noise_shape), np.float32)
    for chunk in episode.chunks:
        at = chunk.first_step
        if at >= steps or chunk.delay or episode.chunk_id[at] != chunk.id:
            continue
        if episode.source[at] != Source.POLICY:
            continue
        if chunk.noise is None or chunk.noise.shape != noise_shape:
            found = None if chunk.noise is None else chunk.noise.shape
            raise ValueError(
                f"Chunk {chunk.id} of episode {episode.id} has noise of shape {found}, the base draws "
                f"{noise_shape}; learn from episodes of this base."
            )
        started[at], noise[at] = True, chunk.noise
    return started, noise


def windows(rows: NDArray[Any], steps: int) -> NDArray[Any]:
    """The last `steps` rows up to each, oldest first, (T + 1, steps, ...); the first repeats before it.

    Args:
        rows: (T + 1, ...).
        steps: Observation steps of the base.
    """
    at = np.arange(len(rows))[:, None] - np.arange(steps - 1, -1, -1)
    found: NDArray[Any] = rows[np.maximum(at, 0)]
    return found


def _runs(labels: Labels) -> Iterator[tuple[int, int]]:
    """First step and the step after the last of every run of one source; pauses are none."""
    segment = labels.segment
    broken = (segment[1:] != segment[:-1]) | ~labels.continuous[:-1]
    edges = [0, *(np.flatnonzero(broken) + 1), len(segment)]
    for first, after in itertools.pairwise(edges):
        if segment[first] >= 0:
            yield int(first), int(after)
