import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.features import Feature
from data.statistics import (
    FeatureStatistics,
    NormalizationError,
    ScalingRule,
    compute_statistics,
    scaling,
)

KEY = "observation.state"
JOINTS = Feature((3,), "float32", names=("shoulder.pos", "elbow.pos", "wrist.pos"))


def moving(std=(20.0, 5.0, 8.0), mean=(0.0, -40.0, 85.0), n=2000):
    rng = np.random.default_rng(0)
    return rng.normal(mean, std, (n, len(std)))


def test_statistics_of_a_hand_worked_case():
    found = compute_statistics({KEY: np.array([[0.0, 2.0], [4.0, 2.0]], np.float32)})[KEY]
    np.testing.assert_array_equal(found.mean, [2.0, 2.0])
    np.testing.assert_array_equal(found.std, [2.0, 0.0])
    np.testing.assert_array_equal(found.min, [0.0, 2.0])
    np.testing.assert_array_equal(found.max, [4.0, 2.0])
    np.testing.assert_allclose(found.q01, [0.04, 2.0])
    np.testing.assert_allclose(found.q99, [3.96, 2.0])
    assert found.count == 2


def test_large_float32_values_do_not_lose_their_deviation():
    values = (1e7 + np.array([[0.0], [1.0]] * 500)).astype(np.float32)
    assert compute_statistics({KEY: values})[KEY].std[0] == pytest.approx(0.5, rel=1e-6)


def test_statistics_survive_json():
    found = compute_statistics({KEY: moving()})[KEY]
    again = FeatureStatistics.from_json(found.to_json())
    for name in ("mean", "std", "min", "max", "q01", "q99"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.count == 2000
    with pytest.raises(ValueError, match="q01"):
        FeatureStatistics.from_json({k: v for k, v in found.to_json().items() if k != "q01"})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_is_not_finite_is_refused_with_sample_and_dimension(bad):
    values = moving()
    values[17, 1] = bad
    with pytest.raises(NormalizationError, match=r"observation.state.*elbow.pos of sample 17"):
        compute_statistics({KEY: values}, {KEY: JOINTS})


def test_no_samples_are_refused():
    with pytest.raises(NormalizationError, match="at least one sample"):
        compute_statistics({KEY: np.zeros((0, 3))})


def test_missing_statistics_name_the_feature():
    with pytest.raises(
        NormalizationError, match=r"no statistics for 'observation.wrench'.*observation.state"
    ):
        scaling("observation.wrench", JOINTS, compute_statistics({KEY: moving()}))


def test_statistics_of_another_width_are_refused():
    with pytest.raises(NormalizationError, match=r"shape \(3,\), but its mean has \(2,\)"):
        scaling(KEY, JOINTS, compute_statistics({KEY: moving()[:, :2]}))


def test_infinite_statistics_name_the_dimension():
    stats = compute_statistics({KEY: moving()})
    stats[KEY].mean[2] = np.inf
    with pytest.raises(NormalizationError, match=r"mean of 'observation.state' is inf at wrist.pos"):
        scaling(KEY, JOINTS, stats)


def test_statistics_that_contradict_themselves_are_refused():
    stats = compute_statistics({KEY: moving()})
    stats[KEY].std[0] = -1.0
    with pytest.raises(NormalizationError, match=r"contradict.*shoulder.pos"):
        scaling(KEY, JOINTS, stats)


@pytest.mark.parametrize("mode", ["mean_std", "min_max", "quantile"])
def test_moving_dimensions_are_scaled_by_their_own_statistics(mode):
    stats = compute_statistics({KEY: moving()})
    found = scaling(KEY, JOINTS, stats, ScalingRule(mode))
    s = stats[KEY]
    want = {"mean_std": s.std, "min_max": (s.max - s.min) / 2, "quantile": (s.q99 - s.q01) / 2}[mode]
    np.testing.assert_array_equal(found.scale, want)
    assert found.clamped == ()
    assert np.isinf(found.bound).all()


@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-5, 4e-3])
@pytest.mark.parametrize("mean", [0.0, 31.0])
@pytest.mark.parametrize("mode", ["mean_std", "min_max", "quantile"])
def test_a_joint_that_stood_still_is_refused_or_clamped_by_name(noise, mean, mode, caplog):
    values = moving(std=(20.0, noise, 8.0), mean=(0.0, mean, 85.0))
    stats = compute_statistics({KEY: values})
    with pytest.raises(NormalizationError, match=r"observation.state.*hardly moved.*elbow.pos"):
        scaling(KEY, JOINTS, stats, ScalingRule(mode, constant="refuse"))
    with caplog.at_level(logging.WARNING):
        found = scaling(KEY, JOINTS, stats, ScalingRule(mode))
    assert found.clamped == ("elbow.pos",)
    assert "elbow.pos" in caplog.text
    assert found.scale[1] >= 0.09, "a degree of motion must not become dozens of scales"
    np.testing.assert_array_equal(found.bound, [np.inf, 5.0, np.inf])


def test_millimetres_are_motion_where_the_unit_is_metres():
    steps = Feature((3,), "float32", unit="m", names=("x", "y", "z"))
    stats = compute_statistics({KEY: moving(std=(4e-3, 1e-3, 3e-4), mean=(0.0, 0.0, 0.0))})
    assert scaling(KEY, steps, stats).clamped == ()


def test_declared_limits_decide_for_an_action():
    stats = compute_statistics({"action": moving(std=(5e-3, 1e-6, 5e-3), mean=(0, 0, 0))})
    feature = Feature((3,), "float32", unit="m", names=("x", "y", "z"))
    limits = (np.full(3, -0.02), np.full(3, 0.02))
    found = scaling("action", feature, stats, limits=limits)
    assert found.clamped == ("y",)
    assert found.scale[1] == pytest.approx(5e-3 * 0.02)


def test_rare_spikes_do_not_make_quantile_scales_explode():
    values = np.zeros((1000, 1))
    values[::200] = 100.0
    force = Feature((1,), "float32", unit="N", names=("z",))
    found = scaling(KEY, force, compute_statistics({KEY: values}), ScalingRule("quantile"))
    assert (100.0 - found.offset[0]) / found.scale[0] <= 50.0


@pytest.mark.parametrize(
    ("field", "value"), [("mode", "std"), ("constant", "ignore"), ("relative", 0.0), ("bound", np.nan)]
)
def test_rules_name_a_value_that_is_not_allowed(field, value):
    with pytest.raises(ValueError, match=field):
        ScalingRule(**{field: value})


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(0, 1e3)), min_size=1, max_size=5),
    st.sampled_from(["mean_std", "min_max", "quantile"]),
)
def test_no_training_value_is_ever_scaled_out_of_sight(dimensions, mode):
    mean, std = (np.array(column) for column in zip(*dimensions, strict=True))
    values = moving(std=std, mean=mean, n=300)
    feature = Feature((len(mean),), "float64")
    found = scaling(KEY, feature, compute_statistics({KEY: values}), ScalingRule(mode))
    scaled = (values - found.offset) / found.scale
    assert np.isfinite(scaled).all()
    assert np.abs(scaled).max() <= 50.0 + 1e-9
