from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.records import EpisodeBuilder, Source, Step
from data.windows import ChunkWindows, Trajectory

from .labels.timelines import PERIOD, timeline


def ramp(steps, start=0, rows=1, **facts):
    """Observation row t is start + t, action t is start + 100 + t."""
    return Trajectory(
        {"observation.state": np.arange(start, start + steps + rows, dtype=np.float32)[:, None]},
        np.arange(start + 100, start + 100 + steps, dtype=np.float64)[:, None],
        **facts,
    )


def test_hand_worked_windows_of_two_trajectories():
    windows = ChunkWindows([ramp(3, task="a"), ramp(2, start=1000, task="b")], observation_steps=2, horizon=3)
    assert len(windows) == 5
    batch = windows.batch([0, 2, 3, 4])
    np.testing.assert_array_equal(
        batch.observations["observation.state"][..., 0], [[0, 0], [1, 2], [1000, 1000], [1000, 1001]]
    )
    np.testing.assert_array_equal(
        batch.actions[..., 0], [[100, 101, 102], [102, 102, 102], [1100, 1101, 1101], [1101, 1101, 1101]]
    )
    np.testing.assert_array_equal(
        batch.mask, [[True, True, True], [True, False, False], [True, True, False], [True, False, False]]
    )
    assert batch.tasks == ["a", "a", "b", "b"]


def test_a_chunk_that_starts_in_the_past_is_padded_at_the_start():
    batch = ChunkWindows([ramp(4)], observation_steps=2, horizon=3, first_action=-1).batch([0, 1])
    np.testing.assert_array_equal(batch.actions[..., 0], [[100, 100, 101], [100, 101, 102]])
    np.testing.assert_array_equal(batch.mask, [[False, True, True], [True, True, True]])


def test_a_chunk_never_reaches_across_a_change_of_hands():
    usable = np.array([True, True, False, True, True])
    windows = ChunkWindows([ramp(5, usable=usable)], observation_steps=1, horizon=4)
    np.testing.assert_array_equal(windows.step, [0, 1, 3, 4])
    np.testing.assert_array_equal(windows.mask, [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]])


def test_a_chunk_of_an_episode_stays_within_one_pair_of_hands_and_one_recording():
    episode = timeline("pphhh|pppp", events=[("pause", 7.4 * PERIOD), ("resume", 7.6 * PERIOD)])
    for sources in (None, ["policy", "human"]):
        windows = ChunkWindows(
            [Trajectory.of(episode, sources=sources)], observation_steps=1, horizon=3, first_action=0
        )
        np.testing.assert_array_equal(windows.step, [0, 1, 2, 3, 4, 6, 7, 8, 9])
        assert windows.mask.sum(1).tolist() == [2, 1, 3, 2, 1, 2, 1, 2, 1]


def test_an_episode_gives_the_asked_column_and_sources():
    builder = EpisodeBuilder(id="e", task="push")
    builder.start({"observation.state": np.zeros(2, np.float32)})
    for t, source in enumerate([Source.POLICY, Source.HUMAN, Source.PAUSED]):
        step = Step(action=[t], action_intended=[t + 0.5], source=source, wall_time=0.0, monotonic_time=t)
        builder.append(step, {"observation.state": np.full(2, t, np.float32)})
    episode = builder.finish()
    found = Trajectory.of(episode, ["observation.state"], label="action_intended", sources=[Source.HUMAN])
    windows = ChunkWindows([found], observation_steps=1, horizon=2)
    batch = windows.batch([0])
    assert len(windows) == 1
    np.testing.assert_array_equal(batch.actions[0, 0], [1.5])
    np.testing.assert_array_equal(batch.mask, [[True, False]])
    with pytest.raises(KeyError, match=r"observation.wrench"):
        Trajectory.of(episode, ["observation.wrench"])


@pytest.mark.parametrize(
    ("trajectories", "match"),
    [
        ([], "nothing to learn"),
        ([ramp(3, rows=3)], "3 actions, but observations of"),
        (
            [Trajectory({"a": np.zeros((3, 1))}, np.full((3, 1), np.nan), id="seven")],
            "'seven' has no finite action at step 0",
        ),
        ([ramp(2), Trajectory({"b": np.zeros((2, 1))}, np.zeros((2, 1)))], "has \\['b'\\]"),
        ([ramp(2, usable=np.zeros(2, bool))], "No step may be imitated"),
    ],
)
def test_what_cannot_be_cut_is_refused(trajectories, match):
    with pytest.raises(ValueError, match=match):
        ChunkWindows(trajectories, observation_steps=1, horizon=2)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 1),
)
def test_no_window_leaves_its_trajectory(lengths, n_obs, horizon, rows):
    trajectories = [ramp(length, start=1000 * i, rows=rows) for i, length in enumerate(lengths)]
    windows = ChunkWindows(trajectories, observation_steps=n_obs, horizon=horizon)
    batch = windows.batch(range(len(windows)))
    assert len(windows) == sum(lengths)
    assert windows.mask.sum() == sum(min(horizon, n - t) for n in lengths for t in range(n))
    seen = batch.observations["observation.state"][..., 0]
    assert (seen // 1000 == windows.trajectory[:, None]).all()
    assert ((batch.actions[..., 0] - 100) // 1000 == windows.trajectory[:, None]).all()
    np.testing.assert_array_equal(seen[:, -1] % 1000, windows.step)
    np.testing.assert_array_equal(batch.actions[:, 0, 0] % 1000 - 100, windows.step)


def test_where_the_rate_is_known_a_chunk_also_ends_at_a_gap_that_no_event_explains():
    times = PERIOD * np.array([0, 1, 2, 5, 6, 7])
    episode = timeline("pppppp", times=times)
    cases = ((1 / PERIOD, [3, 2, 1, 3, 2, 1]), (None, [3, 3, 3, 3, 2, 1]), (2 / PERIOD, [3, 2, 1, 3, 2, 1]))
    for rate, lengths in cases:
        windows = ChunkWindows([Trajectory.of(episode, rate_hz=rate)], observation_steps=1, horizon=3)
        assert windows.mask.sum(1).tolist() == lengths
    free = replace(timeline("ppp", times=[0.0, 0.001, 0.5]), robot="simulation")
    assert Trajectory.of(free, rate_hz=20.0).runs.tolist() == [0, 0, 0]
