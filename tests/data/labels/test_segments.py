import numpy as np
import pytest

from data.labels import Segment, segments
from data.labels.segments import GAP, broken, control_period, sources
from data.records import Source

from .timelines import PERIOD, timeline


def bounds(episode, **options):
    return [(part.start, part.stop, str(part.source)) for part in segments(episode, **options)]


def test_runs_of_one_source_in_order():
    assert bounds(timeline("dpphp")) == [
        (0, 1, "demo"),
        (1, 3, "policy"),
        (3, 4, "human"),
        (4, 5, "policy"),
    ]
    assert segments(timeline("pp"))[0] == Segment(0, 2, Source.POLICY)
    assert len(Segment(3, 7, Source.HUMAN)) == 4


def test_a_pause_is_in_no_segment_and_parts_those_beside_it():
    assert bounds(timeline("pp||pp")) == [(0, 2, "policy"), (4, 6, "policy")]
    assert segments(timeline("|||")) == ()


@pytest.mark.parametrize(("late", "parts"), [(GAP - 0.01, 1), (GAP + 0.01, 2)])
def test_a_step_later_than_one_and_a_half_periods_begins_a_new_segment(late, parts):
    times = PERIOD * np.array([0, 1, 2, 3, 3 + late, 4 + late, 5 + late])
    assert len(segments(timeline("ppppppp", times=times))) == parts


def test_a_gap_in_either_clock_counts_and_so_does_a_monotonic_clock_that_goes_back():
    from dataclasses import replace

    episode = timeline("pppppp")
    jump = np.array([0, 0, 0, 3.0, 3.0, 3.0])
    assert bounds(replace(episode, wall_time=episode.wall_time + jump))[0] == (0, 3, "policy")
    assert bounds(replace(episode, monotonic_time=episode.monotonic_time + jump))[0] == (0, 3, "policy")
    assert bounds(replace(episode, monotonic_time=episode.monotonic_time - jump))[0] == (0, 3, "policy")
    # A computer's clock that was set back lost no time.
    assert len(segments(replace(episode, wall_time=episode.wall_time - jump))) == 1


def test_the_period_may_be_given_and_an_infinite_one_knows_no_gaps():
    times = PERIOD * np.array([0, 1, 2, 4, 5, 6])
    episode = timeline("pppppp", times=times)
    assert len(segments(episode)) == 2
    assert len(segments(episode, period=2 * PERIOD)) == 1
    assert len(segments(episode, period=float("inf"))) == 1


def test_the_usual_interval_is_one_that_was_measured():
    assert control_period(np.array([0.0, 1.0, 2.0, 9.0])) == 1.0
    assert control_period(np.array([0.0, 1.0, 9.0])) == 1.0
    assert control_period(np.array([5.0])) == float("inf")


def test_times_that_were_never_recorded_hide_no_steps():
    assert bounds(timeline("pphh", times=np.zeros(4))) == [(0, 2, "policy"), (2, 4, "human")]


def test_a_pause_told_by_events_alone_breaks_the_recording_even_without_a_gap():
    marked = [("pause", 2.4 * PERIOD), ("resume", 2.6 * PERIOD)]
    assert bounds(timeline("pppppp", events=marked)) == [(0, 3, "policy"), (3, 6, "policy")]


def test_steps_recorded_between_a_pause_and_its_resume_are_paused_whatever_their_source_says():
    marked = [("pause", 1.5 * PERIOD), ("resume", 3.5 * PERIOD)]
    assert (
        list(sources(timeline("pppppp", events=marked))) == ["policy"] * 2 + ["paused"] * 2 + ["policy"] * 2
    )
    endless = timeline("pppp", events=[("pause", 1.5 * PERIOD)])
    assert list(sources(endless)) == ["policy"] * 2 + ["paused"] * 2


def test_an_emergency_stop_breaks_the_recording():
    assert bounds(timeline("pppp", events=[("emergency_stop", 1.5 * PERIOD)])) == [
        (0, 2, "policy"),
        (2, 4, "policy"),
    ]


def test_a_takeover_is_a_change_of_source_and_no_lost_time():
    marked = [("takeover", 1.9 * PERIOD), ("handback", 3.9 * PERIOD)]
    assert not broken(timeline("pphhpp", events=marked)).any()


def test_time_is_lost_before_and_during_a_pause_but_not_after_the_last_step():
    assert list(broken(timeline("pp||pp"))) == [False, True, True, True, False, False]


def test_a_step_sent_before_the_key_was_pressed_is_the_policys():
    # The recording calls step 2 human, but its action went out before the key was pressed.
    late = timeline("pphhhp", events=[("takeover", 2.5 * PERIOD)])
    assert list(sources(late)) == ["policy"] * 3 + ["human"] * 2 + ["policy"]
    on_time = timeline("pphhhp", events=[("takeover", 2.0 * PERIOD)])
    assert list(sources(on_time)) == list(on_time.source)
    second_press = timeline("pphhhp", events=[("takeover", 1.5 * PERIOD), ("takeover", 3.5 * PERIOD)])
    assert list(sources(second_press)) == list(second_press.source)
