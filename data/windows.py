"""Observation histories and action chunks for behaviour cloning, cut from whole trajectories by index.

Nothing is copied until a batch is taken, so that overlapping windows over pictures cost no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.labels.segments import control_period, numbers, segments
from data.validate.signals import free_running

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from data.records import Episode


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What windows are cut from.

    Attributes:
        observations: By key, each (T, ...) or (T + 1, ...).
        actions: (T, A), robot units.
        usable: (T,), which steps may be imitated; all of them when None.
        task: The task in words.
        id: Names the trajectory in messages.
        runs: (T,) whole numbers; a chunk stays inside a run of equal ones. One run when None.
    """

    observations: Mapping[str, NDArray[Any]]
    actions: NDArray[Any]
    usable: NDArray[np.bool_] | None = None
    task: str = ""
    id: str = ""
    runs: NDArray[np.integer] | None = None

    @classmethod
    def of(
        cls,
        episode: Episode,
        keys: Collection[str] | None = None,
        *,
        label: str = "action",
        sources: Collection[str] | None = None,
        rate_hz: float | None = None,
    ) -> Trajectory:
        """Trajectory of a recorded episode: paused steps are not imitated; hands, pauses, gaps end a chunk.

        Args:
            episode: The episode.
            keys: Observations to take; all of them when None.
            label: Column to imitate: ``"action"`` (executed) or ``"action_intended"`` (before noise and
                guard).
            sources: Imitate only steps of these sources; of any that acts when None.
            rate_hz: Control rate. Where it is given, a chunk also ends before a step that came later than 1.5
                periods (of that rate, or of the usual interval where steps came slower throughout). Times of
                a simulation that steps as fast as it can say nothing and cut nothing.

        Raises:
            KeyError: The episode lacks an observation; a missing sensor is never replaced by zeros.
        """
        missing = sorted(set(keys or ()) - episode.observations.keys())
        if missing:
            raise KeyError(f"Episode {episode.id} lacks {missing}; it has {sorted(episode.observations)}.")
        chosen = {key: episode.observations[key] for key in (keys or episode.observations)}
        runs = numbers(segments(episode, period=_period(episode, rate_hz)), len(episode))
        usable = runs >= 0
        if sources is not None:
            usable &= np.isin(episode.source, [str(source) for source in sources])
        return cls(chosen, getattr(episode, label), usable, episode.task, episode.id, runs)


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows as arrays.

    Attributes:
        observations: By key, (B, n_obs, ...), the last row being the present.
        actions: (B, H, A), the nearest action of the trajectory where the mask is False.
        mask: (B, H), True where the action was really taken and may be imitated.
        tasks: The task in words of each row.
    """

    observations: Mapping[str, NDArray[Any]]
    actions: NDArray[Any]
    mask: NDArray[np.bool_]
    tasks: list[str]


class ChunkWindows:
    """One window for each step of every trajectory that may be imitated.

    At step t the history is rows t - n_obs + 1 to t, the first observation repeated before the start; the
    chunk is actions t + first_action to t + first_action + H - 1. Its mask is False outside the trajectory,
    and from the first action that may not be imitated on: a chunk never reaches across a pause or a change of
    hands.

    Args:
        trajectories: What to cut, all with the same keys and widths.
        observation_steps: Length of the history n_obs.
        horizon: Length of the chunk H.
        first_action: Offset of the chunk's first action from the present step; 1 - n_obs to 0.

    Raises:
        ValueError: There is nothing to cut, lengths or keys disagree, or an action to imitate is not finite.
    """

    def __init__(
        self,
        trajectories: Iterable[Trajectory],
        *,
        observation_steps: int,
        horizon: int,
        first_action: int = 0,
    ) -> None:
        if observation_steps < 1 or horizon < 1:
            raise ValueError(
                f"observation_steps {observation_steps} and horizon {horizon} must be at least 1."
            )
        if not 1 - observation_steps <= first_action <= 0:
            raise ValueError(f"first_action is {first_action}; allowed: {1 - observation_steps} to 0.")
        kept = list(trajectories)
        if not kept:
            raise ValueError("No trajectories were given; there is nothing to learn from.")
        for trajectory in kept:
            _check(trajectory, kept[0])
        self.tasks = [trajectory.task for trajectory in kept]
        self.observations = {
            k: np.concatenate([t.observations[k] for t in kept]) for k in kept[0].observations
        }
        self.actions = np.concatenate([t.actions for t in kept])
        self._index(
            kept, np.arange(1 - observation_steps, 1), np.arange(first_action, first_action + horizon)
        )

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.trajectory)

    def batch(self, rows: Sequence[int] | NDArray[np.integer]) -> Batch:
        """Copy some windows out.

        Args:
            rows: Indices of windows, (B,).
        """
        rows = np.asarray(rows)
        return Batch(
            {key: values[self.observation_index[rows]] for key, values in self.observations.items()},
            self.actions[self.action_index[rows]],
            self.mask[rows],
            [self.tasks[i] for i in self.trajectory[rows]],
        )

    def _index(
        self, kept: Sequence[Trajectory], history: NDArray[np.integer], chunk: NDArray[np.integer]
    ) -> None:
        seen, wanted, masks, owners, steps = [], [], [], [], []
        first_row = first_action = 0
        for number, trajectory in enumerate(kept):
            length = len(trajectory.actions)
            usable = (
                np.ones(length, bool) if trajectory.usable is None else np.asarray(trajectory.usable, bool)
            )
            now = np.flatnonzero(usable)
            ahead = now[:, None] + chunk
            nearest = ahead.clip(0, length - 1)
            real = (ahead == nearest) & usable[nearest]
            if trajectory.runs is not None:
                real &= trajectory.runs[nearest] == trajectory.runs[now][:, None]
            # Before the present a chunk may start on padding; from the present on the first gap ends it.
            present = int(-chunk[0])
            real[:, present:] = np.logical_and.accumulate(real[:, present:], axis=1)
            seen.append(first_row + (now[:, None] + history).clip(0))
            wanted.append(first_action + nearest)
            masks.append(real)
            owners.append(np.full(len(now), number))
            steps.append(now)
            first_row += len(next(iter(trajectory.observations.values())))
            first_action += length
        self.observation_index = np.concatenate(seen)
        self.action_index = np.concatenate(wanted)
        self.mask = np.concatenate(masks)
        self.trajectory = np.concatenate(owners)
        self.step = np.concatenate(steps)
        if not len(self):
            raise ValueError("No step may be imitated; check the sources that were asked for.")


def _period(episode: Episode, rate_hz: float | None) -> float:
    """Control period by which gaps are told, s; infinite where times say nothing."""
    if rate_hz is None or free_running(episode):
        return float("inf")
    usual = control_period(episode.monotonic_time)
    return max(1 / rate_hz, usual) if np.isfinite(usual) else float("inf")


def _check(trajectory: Trajectory, first: Trajectory) -> None:
    steps = len(trajectory.actions)
    if not steps or not trajectory.observations:
        raise ValueError(
            f"Trajectory {trajectory.id!r} has {steps} actions and {len(trajectory.observations)} keys."
        )
    if trajectory.observations.keys() != first.observations.keys():
        raise ValueError(
            f"Trajectory {trajectory.id!r} has {sorted(trajectory.observations)}, the first one "
            f"{sorted(first.observations)}."
        )
    lengths = {key: len(rows) for key, rows in trajectory.observations.items()}
    if len(set(lengths.values())) != 1 or next(iter(lengths.values())) not in {steps, steps + 1}:
        raise ValueError(
            f"Trajectory {trajectory.id!r} has {steps} actions, but observations of {lengths} rows."
        )
    usable = np.ones(steps, bool) if trajectory.usable is None else trajectory.usable
    bad = usable & ~np.isfinite(trajectory.actions).all(axis=1)
    if bad.any():
        raise ValueError(
            f"Trajectory {trajectory.id!r} has no finite action at step {int(np.flatnonzero(bad)[0])}; "
            "repair it, drop it, or imitate another column."
        )
