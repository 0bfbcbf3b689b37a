import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.action_spec import ActionGroup, ActionSpec
from hardware.guard import GuardConfig, SafetyGuard
from hardware.rotations import angle_between, convert

JOINTS = ActionSpec((ActionGroup("arm", 2, "absolute", "joint", unit="rad", low=-1.0, high=2.0),), 10.0)
MIXED = ActionSpec(
    (
        ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=-0.02, high=0.03),
        ActionGroup("gripper", 1, "absolute", "gripper", unit="m", low=0.0, high=0.08),
    ),
    20.0,
)
POSE = ActionSpec(
    (ActionGroup("arm", 7, "absolute", "pose", "base", "quaternion_wxyz", "m", low=-1.0, high=1.0),), 10.0
)
SPECS = {"joints": (JOINTS, (1.0,)), "mixed": (MIXED, (0.2, 0.2, 0.2, 0.5)), "pose": (POSE, (0.5,))}
HOME = {"joints": [0.0, 0.0], "mixed": [0, 0, 0, 0.04], "pose": [0, 0, 0, 1, 0, 0, 0]}


def guard_of(name):
    spec, speed = SPECS[name]
    guard = SafetyGuard(spec, GuardConfig(max_speed=speed))
    guard.reset(HOME[name], 0.0)
    return guard


def test_an_ordinary_command_passes_bit_for_bit():
    action = np.array([0.1 / 3, -0.07])
    found = guard_of("joints").check(action, 0.0, 0.1)
    assert (found.verdict, found.because) == ("passed", "")
    np.testing.assert_array_equal(found.action, action)


def test_limits_and_speed_are_kept_and_named():
    guard = guard_of("joints")
    found = guard.check([5.0, 0.05], 0.1, 0.1)
    np.testing.assert_allclose(found.action, [0.1, 0.05])  # 1 rad/s at 10 Hz
    assert found.verdict == "limited"
    assert "arm.joint1 beyond the limits" in found.because
    assert "arm.joint1 too fast" in found.because
    np.testing.assert_allclose(guard.check([5.0, 0.05], 0.2, 0.2).action, [0.2, 0.05])


@pytest.mark.parametrize(
    ("action", "stamp", "now", "because"),
    [
        ([np.nan, 0.0], 0.1, 0.1, "arm.joint1 is nan"),
        ([0.0, np.inf], 0.1, 0.1, "arm.joint2 is inf"),
        ([0.0, 0.0], 0.1, 0.5, "0.400 s old"),
        ([0.0, 0.0], 0.5, 0.1, "from the future"),
        ([0.0, 0.0], math.nan, 0.1, "no finite number"),
        ([0.0, 0.0], 0.1, None, "no finite number"),
        ([0.0, 0.0], -1.0, -1.0, "clock went back"),
        ([0.0], 0.1, 0.1, r"shape (1,)"),
        ("left", 0.1, 0.1, "a str and not numbers"),
        (None, 0.1, 0.1, "is nan|shape"),
    ],
)
def test_a_command_that_cannot_be_trusted_is_held_and_says_why(action, stamp, now, because):
    guard = guard_of("joints")
    before = guard.check([0.05, -0.05], 0.0, 0.0).action
    found = guard.check(action, stamp, now)
    assert found.verdict == "held"
    assert any(part in found.because for part in because.split("|"))
    np.testing.assert_array_equal(found.action, before)


def test_holding_a_delta_is_zero_and_holding_a_target_is_the_target():
    guard = guard_of("mixed")
    guard.check([0.01, 0.01, 0.01, 0.05], 0.0, 0.0)
    np.testing.assert_array_equal(guard.check([np.nan] * 4, 0.05, 0.05).action, [0, 0, 0, 0.05])


def test_a_stop_holds_until_reset():
    guard = guard_of("joints")
    guard.stop("emergency button")
    found = guard.check([0.01, 0.01], 0.1, 0.1)
    assert (found.verdict, found.because) == ("held", "emergency button")
    guard.reset([0.0, 0.0], 0.2)
    assert guard.check([0.01, 0.01], 0.2, 0.2).verdict == "passed"


def test_a_pose_that_would_whirl_round_is_held_and_a_negated_quaternion_is_none():
    guard = guard_of("pose")
    half = convert([0.0, 0.0, 3.0], "rotvec", "quaternion_wxyz")
    found = guard.check([0, 0, 0, *half], 0.0, 0.0)
    assert found.verdict == "held"
    assert "arm turns by 3.000 rad" in found.because
    assert guard.check([0, 0, 0, -1, 0, 0, 0], 0.1, 0.1).verdict == "passed"
    assert "no rotation" in guard.check([0, 0, 0, 0, 0, 0, 0], 0.2, 0.2).because


def test_the_guard_must_know_where_the_robot_is():
    guard = SafetyGuard(JOINTS)
    with pytest.raises(RuntimeError, match="reset"):
        guard.check([0, 0], 0, 0)
    with pytest.raises(ValueError, match=r"arm.joint2 is 3.0"):
        guard.reset([0.0, 3.0], 0.0)


def test_what_the_guard_gives_away_cannot_change_it():
    guard = guard_of("joints")
    guard.check([0.05, 0.05], 0.0, 0.0).action[:] = 99
    np.testing.assert_array_equal(guard.check([np.nan, 0], 0.1, 0.1).action, [0.05, 0.05])


@pytest.mark.parametrize(
    "change", [{"max_age_s": 0}, {"max_turn_rad_s": math.nan}, {"max_speed": (1.0, -1.0)}]
)
def test_impossible_configurations_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        GuardConfig(**change)


def test_speeds_must_fit_the_action():
    with pytest.raises(ValueError, match="3 numbers"):
        SafetyGuard(JOINTS, GuardConfig(max_speed=(1.0, 1.0, 1.0)))


numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(-3, 3), st.integers(-(10**400), 10**400)
)
anything = st.one_of(
    st.lists(numbers, max_size=8),
    st.none(),
    st.text(max_size=3),
    st.lists(st.lists(numbers, max_size=2), max_size=3),
)
times = st.one_of(st.floats(0, 1), st.floats(allow_nan=True, allow_infinity=True), st.none(), st.integers())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(list(SPECS)), st.data())
def test_nothing_that_comes_in_makes_anything_unsafe_go_out(name, data):
    guard = guard_of(name)
    spec, speed = SPECS[name]
    step = np.broadcast_to(np.array(speed), (spec.size,)) / spec.rate_hz
    last = np.array(HOME[name], float)
    delta = np.array([group.mode == "delta" for group in spec.groups for _ in range(group.size)])
    right = st.lists(numbers, min_size=spec.size, max_size=spec.size)
    for _ in range(6):
        found = guard.check(data.draw(st.one_of(right, anything)), data.draw(times), data.draw(times))
        assert np.isfinite(found.action).all()
        assert (found.action >= spec.low).all()
        assert (found.action <= spec.high).all()
        move = np.abs(np.where(delta, found.action, found.action - last))
        turning = np.zeros(spec.size, bool)
        if name == "pose":
            turning[3:] = True
            assert angle_between(last[3:], found.action[3:], "quaternion_wxyz") <= 0.1 + 1e-6
        assert (move <= step + 1e-12)[~turning].all()
        assert (found.verdict == "passed") == (found.because == "")
        last = found.action
