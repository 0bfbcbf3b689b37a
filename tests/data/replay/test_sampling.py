import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from data.replay import Fresh, PerTask, Prioritised, Recent, ReplayBuffer, Uniform
from data.replay.sum_tree import SumTree

from .test_buffer import recording

DRAWS = 20_000


def replay_of(*lengths, capacity=60, versions=None):
    replay = ReplayBuffer(capacity)
    versions = versions or [None] * len(lengths)
    for index, (steps, version) in enumerate(zip(lengths, versions, strict=True)):
        replay.extend([recording(index, steps, version=version)])
    return replay


def frequencies(replay, sampler, count=DRAWS, seed=0):
    numbers, _ = sampler.draw(replay, count, np.random.default_rng(seed))
    assert len(numbers) == count
    return np.bincount(numbers - replay.first, minlength=len(replay))


def fits(found, shares):
    shares = np.asarray(shares, float)
    assert not found[shares == 0].any()
    some = shares > 0
    return chisquare(found[some], shares[some] / shares.sum() * found.sum()).pvalue > 0.01


def test_uniform_draws_all_alike():
    replay = replay_of(3, 7, 2)
    assert fits(frequencies(replay, Uniform()), np.ones(12))


def test_per_task_draws_tasks_alike_however_much_there_is_of_each():
    # Tasks alternate: episodes of 2 and 4 steps are of task 0, the one of 12 is of task 1.
    replay = replay_of(2, 12, 4)
    want = [1 / 6] * 2 + [1 / 12] * 12 + [1 / 6] * 4
    assert fits(frequencies(replay, PerTask()), want)


def test_per_task_follows_given_shares_and_leaves_out_what_is_not_named():
    replay = replay_of(2, 12, 4)
    assert fits(
        frequencies(replay, PerTask({"task 0": 3.0, "task 1": 1.0})),
        [3 / 6] * 2 + [1 / 12] * 12 + [3 / 6] * 4,
    )
    assert fits(frequencies(replay, PerTask({"task 1": 2.0})), [0] * 2 + [1] * 12 + [0] * 4)
    with pytest.raises(ValueError, match="leave nothing to draw"):
        replay.sample(1, np.random.default_rng(0), PerTask({"another": 1.0}))


def test_recent_halves_with_every_half_life_of_age():
    replay = replay_of(5, 5, 5)
    age = np.arange(15)[::-1]
    assert fits(frequencies(replay, Recent(half_life=4.0)), 0.5 ** (age / 4.0))
    assert fits(frequencies(replay, Recent(half_life=1e9)), np.ones(15))
    with pytest.raises(ValueError, match="above 0"):
        Recent(0.0)


def test_what_is_staler_than_the_limit_is_never_drawn():
    replay = replay_of(4, 4, 4, 4, versions=[0, 5_000, 9_000, None])
    sampler = Fresh(now=11_000)
    assert fits(frequencies(replay, sampler), [0] * 4 + [1] * 12)
    sampler.now = 16_000
    assert fits(frequencies(replay, sampler), [0] * 8 + [1] * 8)
    at_limit = Fresh(now=10_000, limit=10_000)
    assert fits(frequencies(replay, at_limit), np.ones(16))


def test_staleness_weighs_and_data_without_a_version_stays_fresh():
    replay = replay_of(2, 3, 2, versions=[0, 100, None])
    found = frequencies(replay, Fresh(now=200, limit=None, half_life=100))
    assert fits(found, [0.25] * 2 + [0.5] * 3 + [1] * 2)


def test_only_stale_data_is_an_error():
    replay = replay_of(4, versions=[0])
    with pytest.raises(ValueError, match="staler than 10000 learner steps at step 20000"):
        replay.sample(4, np.random.default_rng(0), Fresh(now=20_000))


def test_priorities_are_drawn_in_proportion_and_corrected_for():
    replay = replay_of(4, 4)
    sampler = Prioritised(replay, alpha=1.0, beta=1.0, least=1e-12)
    priorities = np.arange(1.0, 9.0)
    sampler.update(np.arange(8), priorities)
    assert fits(frequencies(replay, sampler), priorities)
    batch = replay.sample(DRAWS, np.random.default_rng(1), sampler)
    # Weighted, every transition counts alike again.
    total = np.bincount(batch.number, batch.weight, 8)
    np.testing.assert_allclose(total / total.sum(), 1 / 8, rtol=0.05)
    assert batch.weight.max() == 1.0


def test_alpha_flattens_priorities():
    replay = replay_of(4)
    sampler = Prioritised(replay, alpha=0.5, beta=0.0, least=1e-12)
    sampler.update(np.arange(4), np.array([1.0, 4.0, 9.0, 16.0]))
    assert fits(frequencies(replay, sampler), [1, 2, 3, 4])


def test_what_is_new_gets_the_greatest_priority_and_what_left_none():
    replay = replay_of(4, 4, capacity=15)
    sampler = Prioritised(replay, alpha=1.0, least=1e-12)
    sampler.update(np.arange(8), np.full(8, 5.0))
    sampler.update(np.arange(4), np.full(4, 1.0))
    replay.extend([recording(7, 6)])  # the first episode leaves
    assert replay.first == 4
    sampler.update(np.array([0, 4]), np.array([100.0, 2.0]))  # 0 has left: passed over
    assert fits(frequencies(replay, sampler), [2, 5, 5, 5] + [5] * 6)


def test_priorities_that_make_no_sense_are_refused():
    replay = replay_of(4)
    for wrong in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match="finite and >= 0"):
            Prioritised(replay).update(np.array([0]), np.array([wrong]))
    with pytest.raises(ValueError, match="another replay"):
        replay_of(3).sample(1, np.random.default_rng(0), Prioritised(replay))
    with pytest.raises(ValueError, match="beta"):
        Prioritised(replay, beta=2.0)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_a_tree_finds_the_slot_in_which_the_running_sum_lies(priorities, seed):
    tree = SumTree(len(priorities))
    tree.set(np.arange(len(priorities)), np.array(priorities))
    np.testing.assert_allclose(tree.total, sum(priorities), rtol=1e-12)
    if not tree.total > 1e-6:
        return
    amounts = np.random.default_rng(seed).random(20) * tree.total * (1 - 1e-9)
    want = np.searchsorted(np.cumsum(priorities), amounts, side="right")
    found = tree.find(amounts)
    assert (np.array(priorities)[found] > 0).all()
    near = np.abs(np.cumsum([0, *priorities])[:, None] - amounts).min(0) < 1e-9
    np.testing.assert_array_equal(found[~near], want[~near])


def test_an_amount_that_rounding_took_to_the_total_still_finds_a_slot_with_a_priority():
    tree = SumTree(4)
    tree.set(np.arange(4), np.array([0.0, 1.0, 0.0, 0.0]))
    assert tree.find(np.array([0.0, 1.0])).tolist() == [1, 1]


def test_every_sampler_is_reproducible_from_a_seed():
    replay = replay_of(5, 9, 3, versions=[0, 1, 2])
    for sampler in (Uniform(), PerTask(), Recent(3.0), Fresh(now=3), Prioritised(replay)):
        a = sampler.draw(replay, 100, np.random.default_rng(7))[0]
        b = sampler.draw(replay, 100, np.random.default_rng(7))[0]
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("half_life", [0.0, -1.0, np.inf, np.nan])
def test_a_half_life_that_halves_nothing_is_refused(half_life):
    for sampler in (Recent, Fresh):
        with pytest.raises(ValueError, match=r"half_life is .* above 0"):
            sampler(half_life=half_life)
