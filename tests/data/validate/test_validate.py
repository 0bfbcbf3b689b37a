"""Each kind of damage is found and named where it is, and clean recordings give no finding."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from data.features import Feature
from data.streams import Stream
from data.validate import Kind, Severity, Thresholds
from tests.conftest import REPOSITORY
from tests.data.validate import robot
from tests.data.validate.findings import changed, findings, observed, only


def test_clean_recordings_give_no_finding():
    assert not findings(*(robot.episode(f"a-{seed}", seed=seed, lag=seed % 3) for seed in range(5)))


def test_short_and_single_step_episodes_give_no_finding():
    assert not findings(*(robot.episode(f"a-{n}", steps=n, seed=n) for n in (1, 2, 3, 8, 20)))


def delayed(episode, by):
    """Step 50 and what follows come later, by both clocks."""
    late = by * (np.arange(len(episode)) > 49)
    return replace(episode, monotonic_time=episode.monotonic_time + late, wall_time=episode.wall_time + late)


def test_a_gap_is_found_where_it_is_and_how_long():
    late = delayed(robot.episode(streams=False), 0.4)
    found = only(findings(late))
    assert (found.kind, found.severity, found.feature) == (Kind.GAP, Severity.WARNING, "steps")
    assert (found.first_step, found.last_step) == (49, 50)
    assert found.first_time == pytest.approx(late.monotonic_time[49])
    assert "about 8 samples" in found.message


def test_a_recorded_pause_is_no_gap():
    late = delayed(robot.episode(streams=False), 4.0)
    before, after = late.monotonic_time[49:51]
    assert not findings(replace(late, events=robot.pause(before + 0.1, after - 0.1)))
    assert not findings(replace(late, source=np.where(np.arange(120) == 50, "paused", "policy")))


def test_one_lost_sample_of_a_long_stream_is_a_note_and_many_are_a_warning():
    clean = robot.episode()
    stream = clean.streams["observation.force"]

    def without(rows):
        keep = np.delete(np.arange(len(stream)), rows)
        left = Stream(stream.times[keep], stream.wall_times[keep], stream.values[keep], stream.feature)
        return replace(clean, streams={"observation.force": left})

    note = only(findings(without([300])))
    assert (note.kind, note.severity, note.first_step) == (Kind.GAP, Severity.NOTE, 299)
    assert note.feature == "observation.force (stream)"
    assert only(findings(without(np.arange(300, 330)))).severity is Severity.WARNING
    assert only(findings(without(np.arange(9, 3000, 10)))).severity is Severity.WARNING


@pytest.mark.parametrize("by", [3600.0, -3600.0, 0.2, -0.2])
def test_a_time_of_day_that_was_set_meanwhile_is_named(by):
    clean = robot.episode()
    walls = clean.wall_time.copy()
    walls[30:] += by
    found = only(findings(replace(clean, wall_time=walls)))
    assert (found.kind, found.severity, found.feature) == ("clock_step", "warning", "steps")
    assert (found.first_step, found.last_step) == (30, 30)
    assert f"{by:+.4g} s off the monotonic clock" in found.message


@pytest.mark.parametrize("sample", [(), (6,), (2, 3)])
def test_a_stream_without_any_sample_is_named(sample):
    silent = Stream(np.zeros(0), np.zeros(0), np.zeros((0, *sample), np.float32))
    (found,) = [
        one
        for one in findings(replace(robot.episode(), streams={"observation.force": silent}))
        if one.kind == "gap"
    ]
    assert "no sample at all" in found.message


def test_a_stream_that_stops_early_or_starts_late_is_named():
    clean = robot.episode()
    stream = clean.streams["observation.force"]
    for keep, words in ((slice(0, 1500), "the sensor stopped"), (slice(1500, None), "after the first step")):
        part = Stream(stream.times[keep], stream.wall_times[keep], stream.values[keep], stream.feature)
        found = only(findings(replace(clean, streams={"observation.force": part})))
        assert found.kind is Kind.GAP
        assert words in found.message


def test_time_that_runs_backward_and_duplicated_stamps_are_told_apart():
    clean = robot.episode(streams=False)
    times = clean.monotonic_time.copy()
    times[[30, 31]] = times[[31, 30]]
    times[70] = times[69]
    order, duplicate, *_ = findings(replace(clean, monotonic_time=times))
    assert (order.kind, order.severity, order.first_step) == (Kind.TIME_ORDER, Severity.ERROR, 31)
    assert (duplicate.kind, duplicate.severity) == (Kind.DUPLICATE_TIME, Severity.ERROR)
    assert (duplicate.first_step, duplicate.last_step) == (70, 70)


def test_a_wrong_rate_is_found_and_both_rates_are_said():
    clean = robot.episode(streams=False)
    found = only(findings(replace(clean, monotonic_time=100 + np.arange(120) / 15.0)))
    assert found.kind is Kind.RATE
    assert "15 Hz, 20 Hz were declared" in found.message


def test_a_simulation_that_steps_as_fast_as_it_can_is_a_note_and_a_simulated_clock_is_held_to_its_rate():
    fast = 100 + np.cumsum(np.random.default_rng(0).uniform(0.01, 0.03, 120))
    fast[60:] += 0.5
    clean = robot.episode(streams=False, robot="simulation")
    found = only(findings(replace(clean, monotonic_time=fast)))
    assert (found.kind, found.severity) == (Kind.RATE, Severity.NOTE)
    steady = 100 + np.arange(120) / 10.0
    assert only(findings(replace(clean, monotonic_time=steady))).severity is Severity.WARNING
    assert {f.severity for f in findings(replace(clean, monotonic_time=fast, robot="arm"))} == {
        Severity.WARNING
    }


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_found_by_dimension(value):
    found = only(findings(changed(robot.episode(), "observation.wrench", (slice(40, 43), 2), value)))
    assert (found.kind, found.severity) == (Kind.NOT_FINITE, Severity.ERROR)
    assert (found.feature, found.dimension) == ("observation.wrench", "fz")
    assert (found.first_step, found.last_step) == (40, 42)


def test_nan_is_found_in_actions_and_rewards_but_not_where_it_means_none():
    clean = robot.episode()
    action = clean.action.copy()
    action[7, 1] = np.nan
    assert only(findings(replace(clean, action=action))).place == "a-0, action[y], step 7"
    assert only(findings(replace(clean, action_policy=action))).place == "a-0, action_policy[y], step 7"
    reward = np.where(np.arange(120) == 9, np.nan, 0.0)
    assert only(findings(replace(clean, reward=reward))).place == "a-0, reward, step 9"


@pytest.mark.parametrize("key", ["observation.state", "observation.wrench", "observation.images.top"])
def test_a_sensor_that_repeats_while_the_robot_moves_is_frozen(key):
    clean = robot.episode()
    rows = clean.observations[key].copy()
    rows[40:71] = rows[40]
    found = only(findings(observed(clean, key, rows)))
    assert (found.kind, found.feature) == (Kind.FROZEN, key)
    assert (found.first_step, found.last_step) == (40, 70)


def test_one_frozen_dimension_is_named():
    clean = robot.episode()
    rows = clean.observations["observation.state"].copy()
    rows[40:71, 1] = rows[40, 1]
    found = only(findings(observed(clean, "observation.state", rows)))
    assert (found.kind, found.dimension, found.first_step) == (Kind.FROZEN, "tool.y", 40)


def test_a_camera_dead_in_one_whole_episode_is_found_by_comparison():
    dead = robot.episode("a-1", seed=1)
    rows = np.repeat(dead.observations["observation.images.top"][:1], 121, axis=0)
    found = only(findings(robot.episode(), observed(dead, "observation.images.top", rows)))
    assert (found.kind, found.episode) == (Kind.FROZEN, "a-1")


def test_a_robot_at_rest_is_not_frozen():
    """Everything stands still for a second, as after the goal was reached."""
    clean = robot.episode()
    action = clean.action.copy()
    action[90:] = 0
    resting = replace(clean, action=action, streams={})
    for key, rows in clean.observations.items():
        held = rows.copy()
        held[91:] = held[91]
        resting = observed(resting, key, held)
    assert {finding.kind for finding in findings(resting)} <= {Kind.REPEATS}


def test_a_slow_camera_is_a_note():
    clean = robot.episode()
    rows = clean.observations["observation.images.top"][np.arange(121) // 2]
    found = only(findings(observed(clean, "observation.images.top", rows)))
    assert (found.kind, found.severity) == (Kind.REPEATS, Severity.NOTE)
    assert "50 %" in found.message


def test_untouched_pads_and_goals_that_never_change_are_fine():
    episodes = []
    for seed in range(3):
        clean = robot.episode(f"a-{seed}", seed=seed)
        pad = np.zeros((121, 4, 4, 3), np.float32)
        pad[60:70] = np.random.default_rng(seed).normal(size=(10, 4, 4, 3)) if seed else 0
        goal = np.full((121, 3), np.random.default_rng(seed).normal(size=3), np.float32)
        clean = observed(clean, "observation.tactile.left", pad)
        episodes.append(observed(clean, "observation.environment_state", goal))
    assert not findings(*episodes)


def test_saturated_actions_are_found_with_their_share():
    clean = robot.episode()
    action = clean.action.copy()
    action[:90, 2] = 0.02
    found = only([f for f in findings(replace(clean, action=action)) if f.kind is Kind.SATURATED])
    assert (found.dimension, found.first_step, found.last_step) == ("z", 0, 89)
    assert "75 %" in found.message
    assert Kind.SATURATED in {f.kind for f in findings(replace(clean, action=action), action_spec=None)}


@pytest.mark.parametrize("shift", [-4, -2, 8])
def test_actions_and_observations_that_do_not_belong_together_are_found_with_their_lag(shift):
    clean = robot.episode(steps=200, lag=0)
    action = np.roll(clean.action, -shift, axis=0)
    found = only(findings(replace(clean, action=action)))
    assert (found.kind, found.feature) == (Kind.MISALIGNED, "action")
    assert f"{abs(shift)} steps ({abs(shift) / 20:.2g} s)" in found.message
    assert f"observation t{shift:+d}" in found.message
    assert ("before the action" in found.message) == (shift < 0)


def test_absolute_targets_are_aligned_too():
    spec = {**robot.ACTION_SPEC, "groups": [{**robot.ACTION_SPEC["groups"][0], "mode": "absolute"}]}
    spec["groups"][0] |= {"low": [-9.0] * 3, "high": [9.0] * 3}
    clean = robot.episode(steps=200, lag=0)
    target = clean.observations["observation.state"][1:, :3].astype(np.float64)
    assert not findings(replace(clean, action=target), action_spec=spec)
    early = replace(clean, action=np.roll(target, 3, axis=0))
    for declared in (spec, None):
        kinds = {f.kind: f for f in findings(early, action_spec=declared)}
        assert "3 steps" in kinds[Kind.MISALIGNED].message


def test_short_episodes_are_aligned_together():
    episodes = [robot.episode(f"a-{seed}", steps=15, seed=seed, lag=0) for seed in range(12)]
    late = [replace(e, action=np.roll(e.action, 3, axis=0)) for e in episodes]
    found = only(findings(*late))
    assert (found.kind, found.episode) == (Kind.MISALIGNED, "")


def test_an_episode_with_another_lag_than_the_others_is_found():
    episodes = [robot.episode(f"a-{seed}", seed=seed, lag=0) for seed in range(5)]
    late = robot.episode("a-4", seed=4, lag=3)
    found = only(findings(*episodes[:4], late))
    assert (found.kind, found.severity, found.episode) == (Kind.MISALIGNED, Severity.WARNING, "a-4")
    assert "by 3 steps (0.15 s), in most episodes by 0" in found.message
    assert "observation t+3" in found.message


def test_a_lag_that_all_episodes_have_is_a_note():
    found = only(findings(*(robot.episode(f"a-{seed}", seed=seed, lag=3) for seed in range(4))))
    assert (found.kind, found.severity, found.episode) == (Kind.MISALIGNED, Severity.NOTE, "")


@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_nearly_constant_dimensions_are_found_over_all_episodes(noise):
    episodes = []
    for seed in range(3):
        clean = robot.episode(f"a-{seed}", seed=seed)
        level = 0.5 + noise * np.random.default_rng(seed).normal(size=121)
        episodes.append(changed(clean, "observation.state", (slice(None), 3), level))
    found = only(findings(*episodes))
    assert (found.kind, found.severity) == (Kind.CONSTANT, Severity.WARNING)
    assert found.place == "all episodes, observation.state[width]"


def test_a_gripper_that_no_action_moves_is_a_note_only():
    features = {"observation.state": Feature((4,), "float32", "m", ("tool.x", "tool.y", "tool.z", "gripper"))}
    held = changed(robot.episode(), "observation.state", (slice(None), 3), 0.016)
    assert only(findings(held, features=features)).severity is Severity.NOTE


def test_a_missing_outcome_is_found():
    assert only(findings(robot.episode(outcome="unknown"))).kind is Kind.OUTCOME


@pytest.mark.parametrize("how", ["copied", "missing"])
def test_a_missing_last_observation_is_found(how):
    clean = robot.episode()
    for key, rows in clean.observations.items():
        last = rows.copy()
        last[-1] = rows[-2]
        if how == "missing" and rows.dtype.kind == "f":
            last[-1] = np.nan
        clean = observed(clean, key, last)
    kinds = {f.kind: f for f in findings(clean)}
    assert kinds[Kind.LAST_OBSERVATION].first_step == 120
    assert ("copy" in kinds[Kind.LAST_OBSERVATION].message) == (how == "copied")


def test_steps_after_the_end_of_an_episode_are_found():
    ended = np.isin(np.arange(120), [60, 119])
    found = only(findings(robot.episode(terminated=ended)))
    assert (found.kind, found.first_step) == (Kind.EARLY_END, 60)


def test_a_recovered_recording_says_that_its_end_is_missing():
    assert only(findings(robot.episode(metadata={"recovered": True}))).kind is Kind.PARTIAL


def test_episodes_with_other_features_are_named():
    other = robot.episode("a-1", seed=1)
    fewer = {key: rows for key, rows in other.observations.items() if "wrench" not in key}
    found = only(findings(robot.episode(), replace(other, observations=fewer)))
    assert (found.kind, found.episode) == (Kind.FEATURES, "a-1")
    assert "observation.wrench" in found.message


def test_commands_that_stand_off_the_state_are_a_note_with_the_distance():
    clean = robot.episode(steps=200, lag=0)
    features = {"observation.state": Feature((3,), "float32", "deg", ("x", "y", "z"))}
    state = 100 * clean.observations["observation.state"][:, :3]
    target = state[1:].astype(np.float64) - [0, 0, 99.0]
    found = findings(
        replace(clean, action=target, observations={"observation.state": state}),
        features=features,
        action_spec=None,
    )
    lead = only([f for f in found if f.kind is Kind.LEAD])
    assert (lead.dimension, lead.severity) == ("z", Severity.NOTE)
    assert "-99" in lead.message


def test_recordings_without_times_rewards_or_names_are_checked_all_the_same():
    clean = robot.episode(streams=False, steps=200, lag=0)
    nothing = np.full(200, np.nan)
    bare = replace(clean, monotonic_time=nothing, wall_time=nothing, reward=nothing)
    note = only(findings(bare, features={}, action_spec=None))
    assert (note.kind, note.severity) == (Kind.NO_TIMES, Severity.NOTE)
    rows = bare.observations["observation.wrench"].copy()
    rows[40:71] = rows[40]
    frozen = observed(bare, "observation.wrench", rows)
    late = replace(frozen, action=np.roll(clean.action, 5, axis=0))
    kinds = {f.kind: f for f in findings(late, features={}, action_spec=None)}
    assert kinds[Kind.FROZEN].first_step == 40
    assert kinds[Kind.FROZEN].first_time is None
    assert "5 steps before" in kinds[Kind.MISALIGNED].message


def test_a_copied_last_observation_that_the_reader_announces_is_a_note():
    clean = robot.episode(metadata={"last_observation": "repeated"})
    for key, rows in clean.observations.items():
        clean = observed(clean, key, np.concatenate([rows[:-1], rows[-2:-1]]))
    assert only(findings(clean)).severity is Severity.NOTE


def test_the_documentation_lists_every_kind_and_every_threshold_with_its_default():
    page = (REPOSITORY / "docs/validate.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (?:error|warning|note) ", page, re.MULTILINE) == [
        str(kind) for kind in sorted(Kind, key=lambda kind: page.index(f"| `{kind}` |"))
    ]
    for item in fields(Thresholds):
        assert f"| `{item.name}` | {item.default} |" in page
