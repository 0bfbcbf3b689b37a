import numpy as np
import pytest
from scipy import stats

from robot_rl.statistics import mcnemar_p, paired_difference, wilson_interval


def pairs(both, only_first, only_second, neither):
    first = [True] * (both + only_first) + [False] * (only_second + neither)
    second = [True] * both + [False] * only_first + [True] * only_second + [False] * neither
    return first, second


def test_wilson_matches_the_formula_worked_by_hand():
    # 8 of 10, z = 1.96: centre (0.8 + 0.19207) / 1.38415, half-width 1.96 sqrt(0.016 + 0.0096036) / 1.38415
    low, high = wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_wilson_of_no_success_starts_at_zero_and_is_not_empty():
    low, high = wilson_interval(0, 200)
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(1.96**2 / (200 + 1.96**2), abs=1e-4)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 10), (11, 10), (0, 0)])
def test_wilson_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="successes of"):
        wilson_interval(successes, trials)


def test_newcombe_interval_of_the_published_example():
    # Newcombe 1998, table II, first data set (36, 12, 2, 0): 0.2000, method 10 interval 0.0569 to 0.3404
    second, first = pairs(36, 12, 2, 0)
    found = paired_difference(first, second)
    assert found.value == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0569, 0.3404), abs=1e-4)


def test_identical_outcomes_still_leave_uncertainty():
    found = paired_difference([True] * 100 + [False] * 100, [True] * 100 + [False] * 100)
    assert found.value == 0.0
    assert found.interval[0] < 0.0 < found.interval[1]
    assert found.p_value == 1.0


def test_swapping_the_policies_mirrors_the_interval():
    first, second = pairs(40, 5, 45, 10)
    forward, backward = paired_difference(first, second), paired_difference(second, first)
    assert forward.interval[0] == pytest.approx(-backward.interval[1])
    assert (forward.only_first, forward.only_second) == (5, 45)


def test_interval_agrees_with_the_paired_bootstrap_on_many_pairs():
    first, second = pairs(400, 150, 350, 300)
    delta = np.asarray(second, float) - np.asarray(first, float)
    boot = stats.bootstrap(
        (delta,), np.mean, n_resamples=2000, rng=np.random.default_rng(0)
    ).confidence_interval
    assert paired_difference(first, second).interval == pytest.approx((boot.low, boot.high), abs=0.006)


def test_mcnemar_is_the_binomial_test_on_discordant_pairs():
    # 1 against 9: two-sided binomial tail 2 (1 + 10) / 1024
    assert mcnemar_p(1, 9) == pytest.approx(22 / 1024)


def test_paired_difference_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference([True], [True, False])
