"""n-step returns worked out by hand, and what the replay refuses."""

import numpy as np
import pytest

from robot_rl.learn.replay import Replay, n_step


def test_n_step_returns_of_a_success_by_hand() -> None:
    returns, ends, discount = n_step(np.array([0.0, 0.0, 0.0, 1.0]), 3, 0.5, terminated=True)
    np.testing.assert_allclose(returns, [0, 0.25, 0.5, 1])
    assert ends.tolist() == [3, 4, 4, 4]
    np.testing.assert_allclose(discount, [0.125, 0, 0, 0])


def test_a_time_limit_bootstraps_with_the_steps_that_were_left() -> None:
    _, ends, discount = n_step(np.zeros(4), 3, 0.5, terminated=False)
    assert ends.tolist() == [3, 4, 4, 4]
    np.testing.assert_allclose(discount, [0.125, 0.125, 0.25, 0.5])


def _replay(steps: int = 1) -> Replay:
    return Replay(capacity=20, inputs=1, actions=1, steps=steps, gamma=0.9)


def _add(replay: Replay, length: int, offset: float, *, terminated: bool) -> None:
    rows = (offset + np.arange(length + 1, dtype=np.float32))[:, None]
    replay.add(rows, rows / 10, rows[:-1].astype(float) * 2, np.zeros(length), terminated=terminated)


def test_no_transition_crosses_from_one_episode_into_the_next() -> None:
    replay = _replay()
    _add(replay, 3, 0, terminated=False)
    _add(replay, 4, 100, terminated=True)
    batch = replay.sample(500, np.random.default_rng(0))
    np.testing.assert_allclose(batch.next_x - batch.x, 1)
    np.testing.assert_allclose(batch.base, batch.x / 10)
    np.testing.assert_allclose(batch.next_base, batch.next_x / 10)
    np.testing.assert_allclose(batch.action, 2 * batch.x)
    ended = batch.x[:, 0] == 103
    assert ended.any()
    assert (batch.discount[ended] == 0).all()
    assert np.allclose(batch.discount[~ended], 0.9)
    assert len(np.unique(batch.x)) == len(replay) == 7


def test_values_that_are_not_finite_are_refused_and_nothing_is_added() -> None:
    replay = _replay()
    x = np.array([[0.0], [np.nan]], np.float32)
    with pytest.raises(ValueError, match="x of an episode holds values that are not finite"):
        replay.add(x, np.zeros((2, 1), np.float32), np.zeros((1, 1)), np.zeros(1), terminated=True)
    assert len(replay) == 0


def test_a_full_replay_says_so() -> None:
    replay = _replay()
    with pytest.raises(ValueError, match="holds 20 rows; 26 are needed"):
        _add(replay, 25, 0, terminated=True)
