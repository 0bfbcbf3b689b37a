"""The correlation of commands and motions: bounded, found at its lag, and additive over episodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.validate.correlation import Correlation


def moved(lag, rows=40, start=0, stop=None, seed=0):
    """A command that only acts between two rows, and a motion that follows `lag` rows later."""
    command = np.zeros((rows, 1))
    command[start:stop] = np.random.default_rng(seed).choice([-1.0, 1.0], (rows, 1))[start:stop]
    return command, np.roll(command, lag, axis=0)


@pytest.mark.parametrize("lag", [-6, -1, 0, 3, 6])
def test_motion_that_follows_exactly_is_correlated_by_one_at_its_lag(lag):
    """All motion lies in the rows in common: shares of all rows would make it 40 / 34."""
    command, motion = moved(lag, start=6, stop=34)
    found = Correlation.of(command, motion, 8).lag(paired=True, plausible=3)
    assert found.steps == lag
    assert found.correlation == pytest.approx(1.0, abs=0.02)
    assert found.correlation <= 1.0 + 1e-12


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(9, 40), min_size=1, max_size=3),
    steps=st.integers(0, 6),
    paired=st.booleans(),
)
def test_no_correlation_exceeds_one(seed, lengths, steps, paired):
    rng = np.random.default_rng(seed)
    sums = None
    for rows in lengths:
        bursts = rng.random((rows, 2)) < 0.2
        command = bursts * rng.normal(size=(rows, 2)) * 10.0 ** rng.integers(-4, 4)
        one = Correlation.of(command, np.roll(command, steps, axis=0), min(8, rows - 3)).padded(8)
        sums = one if sums is None else sums + one
    found = sums.lag(paired=paired, plausible=3)
    if found is not None:
        assert max(map(abs, found.curve.values())) <= 1.0 + 1e-9
        assert found.plausible <= 1.0 + 1e-9
