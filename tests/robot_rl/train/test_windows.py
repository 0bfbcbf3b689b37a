from __future__ import annotations

import numpy as np
import pytest
import torch

from data.windows import Trajectory
from robot_rl.train.windows import TensorWindows, split


def trajectory(
    length: int, offset: float = 0.0, usable: np.ndarray | None = None, task: str = "t"
) -> Trajectory:
    steps = offset + np.arange(length, dtype=np.float64)
    observations = {
        "observation.state": np.stack([steps, -steps], 1),
        "observation.images.a": np.full((length, 2, 2, 3), int(offset) % 256, np.uint8),
    }
    return Trajectory(observations, steps[:, None], usable, task)


def windows(*trajectories: Trajectory, **more) -> TensorWindows:
    shape = {"observation_steps": 2, "horizon": 4} | more
    return TensorWindows(list(trajectories), **shape)


def test_history_chunk_and_mask_of_a_hand_worked_example() -> None:
    made = windows(trajectory(5), trajectory(3, 100.0, task="other"))
    batch = made.batch(torch.tensor([0, 3, 6]))
    assert batch.observation["observation.state"][:, :, 0].tolist() == [[0, 0], [2, 3], [100, 101]]
    assert batch.action[:, :, 0].tolist() == [[0, 1, 2, 3], [3, 4, 4, 4], [101, 102, 102, 102]]
    assert batch.mask.tolist() == [[True] * 4, [True, True, False, False], [True, True, False, False]]
    assert batch.observation["task"] == ["t", "t", "other"]
    assert batch.observation["observation.images.a"].dtype == torch.uint8


def test_first_action_may_lie_in_the_past() -> None:
    batch = windows(trajectory(5), first_action=1).batch(torch.tensor([0, 2]))
    assert batch.action[:, :, 0].tolist() == [[0, 0, 1, 2], [1, 2, 3, 4]]
    assert batch.mask.tolist() == [[False, True, True, True], [True] * 4]


def test_last_action_is_repeated_only_where_the_recording_really_ends() -> None:
    usable = np.array([True, True, False, True, True])
    made = windows(trajectory(5, usable=usable), end="repeat")
    batch = made.batch(torch.arange(len(made)))
    assert made.step.tolist() == [0, 1, 3, 4]
    assert batch.mask.tolist() == [
        [True, True, False, False],
        [True, False, False, False],
        [True] * 4,
        [True] * 4,
    ]
    assert batch.action[2:, :, 0].tolist() == [[3, 4, 4, 4], [4, 4, 4, 4]]


def test_previous_action_is_the_one_executed_before() -> None:
    made = windows(trajectory(5), trajectory(4, 100.0), first_action=1)
    assert made.previous_action(torch.tensor([1, 4, 7]))[:, 0].tolist() == [0, 3, 101]


def test_whole_demonstrations_are_held_out_of_many() -> None:
    parts = split([trajectory(4, 10.0 * i) for i in range(10)], share=0.2, horizon=4, seed=3)
    assert len(parts.held) == 2
    seen = {float(t.actions[0, 0]) for t in parts.train} | {float(t.actions[0, 0]) for t in parts.held}
    assert len(seen) == 10
    assert parts.text == "2 of 10 demonstrations"


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_no_training_chunk_holds_a_held_out_action_of_few(share) -> None:
    parts = split([trajectory(120), trajectory(90, 1000.0)], share=share, horizon=8, seed=0)
    train, held = (
        TensorWindows(p, observation_steps=1, horizon=8, end=end)
        for p, end in ((parts.train, "repeat"), (parts.held, "mask"))
    )
    imitated = set(train.used("action").flatten().tolist())
    measured = set(held.used("action").flatten().tolist())
    assert not imitated & measured
    assert len(measured) == {0.1: 48, 0.3: 63}[share], "six blocks, of 8 steps at least"
    assert held.mask.all(dim=1).any(), "some held-out chunks are whole"


def test_nothing_is_held_out_of_a_share_of_zero() -> None:
    parts = split([trajectory(5)], share=0, horizon=4, seed=0)
    assert (len(parts.train), parts.held) == (1, [])
