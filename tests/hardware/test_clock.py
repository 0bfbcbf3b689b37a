import math

import pytest

from hardware.clock import SimulatedClock, WallClock


def test_simulated_time_moves_only_when_told_and_exactly():
    clock = SimulatedClock(start=2.0, wall_start=1000.0)
    assert (clock.now(), clock.wall()) == (2.0, 1000.0)
    target = 2.0
    for _ in range(1000):
        target += 0.05
        assert clock.sleep_until(target) == 0.0
        assert clock.now() == target
    clock.advance(0.25)
    assert clock.now() == target + 0.25
    assert clock.wall() == pytest.approx(1000 + clock.now() - 2.0)


def test_sleeping_into_the_past_says_how_late_it_is_and_changes_nothing():
    clock = SimulatedClock(start=5.0)
    assert clock.sleep_until(4.5) == 0.5
    assert clock.now() == 5.0


def test_the_time_of_day_may_jump_and_monotonic_time_does_not():
    clock = SimulatedClock(start=1.0, wall_start=100.0)
    clock.set_wall(50.0)
    assert (clock.now(), clock.wall()) == (1.0, 50.0)
    clock.advance(1.0)
    assert clock.wall() == 51.0


@pytest.mark.parametrize(
    "call", [lambda c: c.advance(-1), lambda c: c.advance(math.nan), lambda c: c.sleep_until(math.inf)]
)
def test_impossible_times_are_refused(call):
    clock = SimulatedClock()
    with pytest.raises(ValueError, match=r"finite|back"):
        call(clock)
    assert clock.now() == 0.0


def test_the_wall_clock_waits_and_never_goes_back():
    clock = WallClock()
    start = clock.now()
    assert clock.sleep_until(start + 0.01) >= 0
    assert clock.now() >= start + 0.01
    assert clock.sleep_until(start) > 0
    assert clock.wall() > 1.7e9
    with pytest.raises(ValueError, match="nan"):
        clock.sleep_until(math.nan)
