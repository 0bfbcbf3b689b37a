"""Whole trajectories as latents, frame by frame, and the transitions between chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from policies.flow import FlowPolicy
from robot_rl.guide.latents import encode_rows
from robot_rl.train.demonstrations import Selection, read_demonstrations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from data.windows import Trajectory
    from policies.policy import ChunkPolicy
    from robot_rl.guide.latents import Latents, LatentSource
    from robot_rl.task_texts import TaskTexts
    from robot_rl.train.demonstrations import Demonstrations


@dataclass(frozen=True, eq=False)
class Frames:
    """Latents of every observation of some trajectories, and transitions over what a chunk executes.

    Attributes:
        latents: (N, D), raw as `LatentSource.raw` gives them, or scaled.
        scene: how many of the first columns describe the scene.
        trajectory: (N,) number of each frame's trajectory.
        time: (N,) 0 at the first and 1 at the last frame of a trajectory.
        start: (M,) frames that a transition begins with.
        actions: (M, S, A) the actions executed from there, robot units; it ends S frames later.
        told: text of each trajectory's task.
    """

    latents: Float[Tensor, "N D"]
    scene: int
    trajectory: Int[Tensor, " N"]
    time: Float[Tensor, " N"]
    start: Int[Tensor, " M"]
    actions: Float[Tensor, "M S A"]
    told: tuple[str, ...] = ()

    @property
    def end(self) -> Int[Tensor, " M"]:
        """Frames that transitions end with, (M,)."""
        return self.start + self.actions.shape[1]

    def scaled(self, latents: Latents) -> Frames:
        """Return the same with latents in units of spread."""
        return replace(self, latents=latents.scaled(self.latents))

    def tasks(self, texts: TaskTexts) -> Int[Tensor, " N"]:
        """Return the number of each frame's task.

        Args:
            texts: of the tasks.

        Raises:
            ValueError: if there are several, and a trajectory's is none of them.
        """
        if not texts.size:
            return torch.zeros_like(self.trajectory)
        return torch.from_numpy(texts.numbers(self.told))[self.trajectory]

    def chosen(self, inside: Bool[Tensor, " N"]) -> Frames:
        """Return some of the frames, without transitions; trajectories keep their numbers.

        Args:
            inside: which.
        """
        none = self.start[:0]
        kept = {name: getattr(self, name)[inside] for name in ("latents", "trajectory", "time")}
        return replace(self, **kept, start=none, actions=self.actions[none])

    def joined(self, other: Frames) -> Frames:
        """Return the frames of both, the other's trajectories numbered on."""
        first = int(self.trajectory.max()) + 1
        return Frames(
            torch.cat([self.latents, other.latents]),
            self.scene,
            torch.cat([self.trajectory, other.trajectory + first]),
            torch.cat([self.time, other.time]),
            torch.cat([self.start, other.start + len(self.latents)]),
            torch.cat([self.actions, other.actions]),
            self.told + other.told,
        )

    def transitions_of(self, trajectories: Int[Tensor, " K"]) -> Int[Tensor, " M"]:
        """Return the numbers of the transitions within some trajectories."""
        return torch.isin(self.trajectory[self.start], trajectories).nonzero().flatten()


def read_data(
    policy: ChunkPolicy, path: Path, *, rollouts: bool = False, also: Sequence[str] = ()
) -> Demonstrations:
    """Read what a policy's observations and actions were in recorded episodes.

    Args:
        policy: whose features are read.
        path: an episode store, a run of ``robot-rl collect``, or a LeRobotDataset v3 folder.
        rollouts: take every episode and whoever acted, instead of demonstrations that did not fail.
        also: further observation keys to read.

    Raises:
        ValueError: see `robot_rl.train.demonstrations.read_demonstrations`.
    """
    small = policy.config.image_size if isinstance(policy, FlowPolicy) else _picture_size(policy)
    more: dict[str, Any] = {}
    if rollouts:
        more = {"sources": ("demo", "human", "policy"), "outcomes": ("success", "failure", "unknown")}
    inputs = tuple(dict.fromkeys([*policy.spec.features, *also]))
    return read_demonstrations(path, Selection(inputs=inputs, image_size=small, **more))


def read_trajectories(policy: ChunkPolicy, path: Path, *, rollouts: bool = False) -> list[Trajectory]:
    """Read the trajectories alone; see `read_data`."""
    return list(read_data(policy, path, rollouts=rollouts).trajectories)


def encode_frames(policy: ChunkPolicy, source: LatentSource, trajectories: Sequence[Trajectory]) -> Frames:
    """Encode every frame with the frozen policy.

    Args:
        policy: whose encoder is used; its number of executed steps is the length of a transition.
        source: what of its encoding is taken.
        trajectories: with the policy's observations.

    Raises:
        ValueError: if no trajectory is as long as what a chunk executes.
    """
    span = policy.spec.executed_steps
    found: list[Tensor] = []
    owner, time, start, actions = [], [], [], []
    first, scene = 0, 0
    for number, trajectory in enumerate(trajectories):
        rows = len(next(iter(trajectory.observations.values())))
        raw, scene = encode_rows(policy, source, trajectory.observations, trajectory.task)
        found.append(raw)
        owner.append(np.full(rows, number))
        time.append(np.arange(rows) / max(rows - 1, 1))
        begin = _starts(trajectory, rows, span)
        start.append(first + begin)
        actions.append(trajectory.actions[begin[:, None] + np.arange(span)])
        first += rows
    if not sum(map(len, start)):
        raise ValueError(f"none of {len(trajectories)} trajectories has {span} consecutive actions")
    return Frames(
        torch.cat(found),
        scene,
        torch.from_numpy(np.concatenate(owner)),
        torch.from_numpy(np.concatenate(time).astype(np.float32)),
        torch.from_numpy(np.concatenate(start)),
        torch.from_numpy(np.concatenate(actions).astype(np.float32)),
        tuple(trajectory.task for trajectory in trajectories),
    )


def _starts(trajectory: Trajectory, rows: int, span: int) -> NDArray[np.int64]:
    """Steps from which `span` actions follow each other without a gap, and one more frame."""
    steps = len(trajectory.actions)
    run = np.zeros(steps, np.int64) if trajectory.runs is None else np.asarray(trajectory.runs, np.int64)
    usable = np.ones(steps, bool) if trajectory.usable is None else trajectory.usable
    begin = np.arange(max(min(steps - span + 1, rows - span), 0))
    within = begin[:, None] + np.arange(span)
    whole = usable[within].all(1) & (run[within] == run[within[:, :1]]).all(1)
    return np.asarray(begin[whole], np.int64)


def _picture_size(policy: ChunkPolicy) -> tuple[int, int]:
    sizes = [feature.shape[:2] for feature in policy.spec.features.values() if feature.is_image]
    return (int(sizes[0][0]), int(sizes[0][1])) if sizes else (64, 64)
