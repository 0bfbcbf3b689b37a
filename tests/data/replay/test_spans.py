import numpy as np
import pytest

from data.replay.spans import run_lengths, spans

YES, NO = True, False


def flags(*where, steps=6):
    found = np.zeros(steps, bool)
    found[list(where)] = True
    return found


def of(reward, *, ends=(), lost=(), final=None, reach, gamma=0.5):
    steps = len(reward)
    final = flags(*([steps - 1] if final is None else final), steps=steps)
    return spans(
        np.array(reward, float),
        flags(*ends, steps=steps),
        ~flags(*lost, steps=steps),
        final,
        reach=reach,
        gamma=gamma,
    )


def test_runs_count_down_to_their_last_step():
    assert run_lengths(flags(2, 5)).tolist() == [3, 2, 1, 3, 2, 1]


def test_two_step_targets_worked_by_hand():
    # r = 1 2 4 8, gamma 1/2, the task ends with the last step.
    found = of([1, 2, 4, 8], ends=[3], reach=2)
    assert found.reward.tolist() == [1 + 1, 2 + 2, 4 + 4, 8]
    assert found.steps.tolist() == [2, 2, 2, 1]
    assert found.discount.tolist() == [0.25, 0.25, 0, 0]
    assert found.terminated.tolist() == [NO, NO, YES, YES]
    assert not found.truncated.any()


def test_a_time_limit_bootstraps_from_the_last_observation_with_the_discount_of_the_steps_there_were():
    found = of([1, 2, 4, 8], reach=3)
    assert found.reward.tolist() == [1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8]
    assert found.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert found.truncated.tolist() == [NO, YES, YES, YES]
    assert not found.terminated.any()


def test_a_step_after_which_time_was_lost_belongs_to_no_transition():
    # Time was lost after step 2: steps 0 and 1 reach the observation of step 2, which nobody acts on.
    found = of([1, 2, 4, 8, 16, 32], lost=[2], ends=[5], reach=4)
    assert found.steps.tolist() == [2, 1, 0, 3, 2, 1]
    assert found.reward.tolist() == [1 + 1, 2, 0, 8 + 8 + 8, 16 + 16, 32]
    assert found.discount.tolist() == [0.25, 0.5, 1, 0, 0, 0]
    assert found.terminated.tolist() == [NO, NO, NO, YES, YES, YES]
    assert found.truncated.tolist() == [YES, YES, NO, NO, NO, NO]


def test_an_episode_ends_where_the_next_begins():
    found = of([1, 1, 1, 1, 1, 1], final=[2, 5], ends=[2], reach=5, gamma=1.0)
    assert found.steps.tolist() == [3, 2, 1, 3, 2, 1]
    assert found.terminated.tolist() == [YES] * 3 + [NO] * 3


def test_a_task_that_ends_in_the_middle_of_a_recording_ends_the_transition():
    found = of([1, 1, 1, 1], ends=[1], reach=3, gamma=1.0)
    assert found.steps.tolist() == [2, 1, 2, 1]
    assert found.terminated.tolist() == [YES, YES, NO, NO]


def test_rewards_of_chunks_are_those_of_the_chunk_mdp():
    # n = 2 chunks of L = 2: y = R_t + gamma^L R_{t+L}, R_t = r_t + gamma r_{t+1}.
    reward, gamma = np.array([1.0, 3.0, 5.0, 7.0, 11.0]), 0.9
    by_chunk = reward[:-1] + gamma * reward[1:]
    want = by_chunk[0] + gamma**2 * by_chunk[2]
    found = of(reward, reach=4, gamma=gamma)
    assert found.reward[0] == pytest.approx(want, rel=1e-12)
    assert found.discount[0] == pytest.approx(gamma**4, rel=1e-12)


def test_rewards_in_a_pause_that_are_not_numbers_reach_nobody():
    found = of([1, 2, np.nan, np.nan, 4, 8], lost=[1, 2, 3], reach=3)
    assert found.reward.tolist() == [1, 0, 0, 0, 4 + 4, 8]
    assert np.isfinite(found.reward).all()
