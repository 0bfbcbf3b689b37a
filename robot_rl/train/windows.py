"""Training windows as tensors, and the choice of what is held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from data.windows import ChunkWindows, Trajectory
from policies.request import ActionBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int
    from numpy.typing import NDArray
    from torch import Tensor

End = Literal["mask", "repeat"]
_BLOCKS = 3
_WHOLE = 5


class TensorWindows:
    """Windows over trajectories as batches of tensors; they are cut by index when a batch is taken.

    Args:
        trajectories: with equal keys.
        observation_steps: length of the history; before the start the first observation repeats.
        horizon: H.
        first_action: index in the chunk of the window's own step.
        end: what becomes of positions beyond a trajectory's end: "mask" leaves them out of the loss, "repeat"
            imitates its last action there. Everything behind a step that may not be imitated is left out.

    Raises:
        ValueError: if no step may be imitated.
    """

    def __init__(
        self,
        trajectories: Sequence[Trajectory],
        *,
        observation_steps: int,
        horizon: int,
        first_action: int = 0,
        end: End = "mask",
    ) -> None:
        index = ChunkWindows(
            trajectories, observation_steps=observation_steps, horizon=horizon, first_action=-first_action
        )
        self.observations = {key: _tensor(rows) for key, rows in index.observations.items()}
        self.actions = torch.from_numpy(index.actions.astype(np.float32))
        self.history = torch.from_numpy(index.observation_index)
        self.chunk = torch.from_numpy(index.action_index)
        self.mask = torch.from_numpy(index.mask)
        self.step = torch.from_numpy(index.step)
        self.trajectory = torch.from_numpy(index.trajectory)
        self.tasks = index.tasks
        self.first_action = first_action
        if end == "repeat":
            length = torch.tensor([len(trajectory.actions) for trajectory in trajectories])[self.trajectory]
            beyond = self.step[:, None] + torch.arange(horizon) - first_action >= length[:, None]
            reached = (self.mask | beyond)[:, first_action:].all(dim=1)
            self.mask = self.mask | (beyond & reached[:, None])

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.step)

    def batch(self, rows: Int[Tensor, " B"], device: torch.device | str = "cpu") -> ActionBatch:
        """Return some windows.

        Args:
            rows: their indices.
            device: of the result.
        """
        observation: dict[str, Tensor | list[str]] = {
            key: values[self.history[rows]].to(device) for key, values in self.observations.items()
        }
        observation["task"] = [self.tasks[index] for index in self.trajectory[rows].tolist()]
        return ActionBatch(observation, self.actions[self.chunk[rows]].to(device), self.mask[rows].to(device))

    def previous_action(self, rows: Int[Tensor, " B"]) -> Float[Tensor, "B A"]:
        """Return the action that was executed just before each window.

        Args:
            rows: windows whose `step` is at least 1.
        """
        return self.actions[self.chunk[rows, self.first_action] - 1]

    def used(self, key: str) -> NDArray[np.float32]:
        """Return the observations or, by "action", the actions that some window imitates, (N, ...)."""
        if key == "action":
            return np.asarray(self.actions[torch.unique(self.chunk[self.mask])].numpy())
        return np.asarray(self.observations[key][torch.unique(self.history)].numpy())


def _tensor(rows: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.array(rows, np.uint8 if rows.dtype == np.uint8 else np.float32))


@dataclass(frozen=True, eq=False)
class Split:
    """What is trained on and what is held out.

    Attributes:
        train: trajectories of which no held-out action may be imitated.
        held: trajectories of which only held-out actions may be; empty if nothing is held out.
        text: says what was held out.
    """

    train: list[Trajectory]
    held: list[Trajectory]
    text: str


def split(trajectories: Sequence[Trajectory], *, share: float, horizon: int, seed: int) -> Split:
    """Choose what to hold out.

    Of five trajectories or more, whole ones are held out. Of fewer, blocks of steps spread over each are:
    observations just outside a block are then close to those inside, so such an error measures interpolation
    within a recording, not generalisation to a new one.

    Args:
        trajectories: all of them.
        share: of the trajectories, or of their steps, to hold out; 0 holds nothing out.
        horizon: H; a block is at least this long, if the trajectory allows it.
        seed: of the choice of trajectories.
    """
    if share == 0:
        return Split(list(trajectories), [], "nothing")
    if len(trajectories) >= _WHOLE:
        order = np.random.default_rng(seed).permutation(len(trajectories))
        chosen = set(order[: max(1, round(share * len(trajectories)))].tolist())
        held = [t for i, t in enumerate(trajectories) if i in chosen]
        train = [t for i, t in enumerate(trajectories) if i not in chosen]
        return Split(train, held, f"{len(held)} of {len(trajectories)} demonstrations")
    hidden = [_blocks(len(trajectory.actions), share, horizon) for trajectory in trajectories]
    steps = sum(int(blocks.sum()) for blocks in hidden)
    return Split(
        [_only(t, ~blocks) for t, blocks in zip(trajectories, hidden, strict=True)],
        [_only(t, blocks) for t, blocks in zip(trajectories, hidden, strict=True)],
        f"{_BLOCKS} blocks of each of {len(trajectories)} demonstrations, {steps} steps",
    )


def _blocks(length: int, share: float, horizon: int) -> NDArray[np.bool_]:
    size = max(1, min(max(int(share * length / _BLOCKS), horizon), length // (2 * _BLOCKS)))
    hidden = np.zeros(length, bool)
    for block in range(_BLOCKS):
        start = int(length * (block + 0.5) / _BLOCKS) - size // 2
        hidden[max(start, 0) : start + size] = True
    return hidden


def _only(trajectory: Trajectory, steps: NDArray[np.bool_]) -> Trajectory:
    return replace(trajectory, usable=steps if trajectory.usable is None else trajectory.usable & steps)
