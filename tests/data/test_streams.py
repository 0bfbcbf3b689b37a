import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.features import Feature
from data.streams import Stream


def stream(times, values=None, feature=None):
    times = np.asarray(times, float)
    return Stream(times, 1.7e9 + times, np.arange(len(times)) if values is None else values, feature)


def test_the_newest_sample_that_was_there_is_found_and_never_a_later_one():
    found = stream([1.0, 2.0, 2.0, 4.0])
    np.testing.assert_array_equal(
        found.latest_before([0.9, 1.0, 1.9, 2.0, 3.9, 4.0, 99.0]), [-1, 0, 0, 2, 2, 3, 3]
    )
    assert found.latest_before(2.5) == 2
    assert found.at(2.5) == 2
    np.testing.assert_array_equal(found.at([1.0, 4.0]), [0, 3])


@given(
    st.lists(st.floats(-10, 10), max_size=30),
    st.lists(st.one_of(st.floats(-11, 11), st.just(np.inf), st.just(-np.inf)), max_size=10),
)
def test_whatever_the_order_the_sample_found_is_the_last_of_the_newest_that_are_not_later(times, moments):
    for moment, index in zip(moments, stream(times).latest_before(moments), strict=True):
        there = [i for i, time in enumerate(times) if time <= moment]
        newest = max((times[i] for i in there), default=None)
        assert index == max((i for i in there if times[i] == newest), default=-1)


def test_a_sample_without_a_time_is_never_the_newest():
    found = stream([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(found.latest_before([2.0, 3.0, np.inf]), [0, 2, 2])


def test_before_the_first_sample_there_is_none():
    with pytest.raises(ValueError, match=r"No sample was there yet at 0.5\d* s: the first came at 1.0"):
        stream([1.0, 2.0]).at([3.0, 0.5, 0.9])
    with pytest.raises(ValueError, match="it has none"):
        stream([]).at(1.0)
    with pytest.raises(ValueError, match="NaN"):
        stream([1.0]).latest_before([1.0, np.nan])


def test_what_was_measured_is_copied_and_cannot_change():
    times = np.array([1.0, 2.0])
    found = Stream(times, times, values := np.zeros((2, 3)))
    times[0] = values[0, 0] = 9.0
    assert found.times[0] == 1.0
    assert found.values[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        found.times[0] = 0.0


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ((np.zeros(2), np.zeros(2), np.zeros(3)), r"times \(2,\).*values \(3,\)"),
        ((np.zeros(2), np.zeros(3), np.zeros(2)), r"wall_times \(3,\)"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))), r"times \(2, 1\)"),
        ((0.0, 0.0, 1.0), r"times \(\)"),
        ((np.zeros(1), np.zeros(1), np.array([None])), "Python objects"),
        ((np.zeros(1), np.zeros(1), np.zeros((1, 3)), Feature((2,), "float64")), r"float64\(3,\).*\(2,\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, match):
    with pytest.raises((ValueError, TypeError), match=match):
        Stream(*parts)
