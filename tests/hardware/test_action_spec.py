import json

import numpy as np
import pytest

from hardware.action_spec import ActionGroup, ActionSpec


def arm_and_gripper():
    low, high = (-0.02,) * 3 + (-0.1,) * 3, (0.02,) * 3 + (0.1,) * 3
    arm = ActionGroup("arm", 6, "delta", "pose", "base", "rotvec", "m", low=low, high=high)
    gripper = ActionGroup("gripper", 1, "absolute", "gripper", unit="m", low=0.0, high=0.08)
    return ActionSpec((arm, gripper), 20.0)


def test_dimensions_have_names_units_and_limits_in_order():
    spec = arm_and_gripper()
    assert spec.size == 7
    assert spec.names == ("arm.x", "arm.y", "arm.z", "arm.rx", "arm.ry", "arm.rz", "gripper.opening")
    assert spec.units == ("m", "m", "m", "rad", "rad", "rad", "m")
    np.testing.assert_array_equal(spec.low, [-0.02] * 3 + [-0.1] * 3 + [0.0])
    np.testing.assert_array_equal(spec.high, [0.02] * 3 + [0.1] * 3 + [0.08])
    assert spec.slice("gripper") == slice(6, 7)
    with pytest.raises(ValueError, match="read-only"):
        spec.low[0] = -1


def test_specifications_survive_json():
    spec = arm_and_gripper()
    assert ActionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    broken = spec.to_json()
    del broken["rate_hz"]
    with pytest.raises(ValueError, match="rate_hz"):
        ActionSpec.from_json(broken)


def test_valid_actions_pass_and_others_name_their_dimension():
    spec = arm_and_gripper()
    action = np.array([0.02, -0.02, 0.0, 0.1, 0.0, 0.0, 0.08])
    np.testing.assert_array_equal(spec.validate(action), action)
    with pytest.raises(ValueError, match=r"arm.ry is -0.2: outside.*\[-0.1, 0.1\] rad"):
        spec.validate([0, 0, 0, 0, -0.2, 0, 0])
    with pytest.raises(ValueError, match=r"gripper.opening is nan"):
        spec.validate([0, 0, 0, 0, 0, 0, np.nan])
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        spec.validate([0, 0])


def test_limits_that_went_through_float32_are_taken_with_tolerance():
    spec = ActionSpec((ActionGroup("arm", 1, "delta", "position", unit="m", low=-0.1, high=0.1),), 20)
    rounded = np.float32(0.1)
    assert float(rounded) > 0.1
    with pytest.raises(ValueError, match="outside"):
        spec.validate([rounded])
    assert spec.validate([rounded], tolerance=1e-6) == pytest.approx(0.1)


def test_clip_brings_batches_within_limits_and_refuses_nan():
    spec = arm_and_gripper()
    np.testing.assert_array_equal(spec.clip(np.full((3, 7), np.inf)), np.tile(spec.high, (3, 1)))
    np.testing.assert_array_equal(spec.clip(np.full(7, -1.0)), spec.low)
    with pytest.raises(ValueError, match=r"arm.z is nan"):
        spec.clip([0, 0, np.nan, 0, 0, 0, 0])


def test_clip_gives_a_copy():
    spec = arm_and_gripper()
    action = np.zeros(7)
    spec.clip(action)[0] = 0.01
    assert action[0] == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"size": 5}, "size 6"),
        ({"mode": "relative"}, "allowed: absolute, delta"),
        ({"kind": "joint"}, "pose needs a rotation|'none'"),
        ({"rotation": "quaternion"}, "quaternion_wxyz"),
        ({"low": 0.5}, "low < high"),
        ({"low": (0.0, 1.0)}, "6 finite numbers"),
        ({"high": np.inf}, "finite"),
        ({"names": ("a",) * 6}, "different names"),
    ],
)
def test_impossible_groups_say_what_is_allowed(change, match):
    facts = {
        "name": "arm",
        "size": 6,
        "mode": "delta",
        "kind": "pose",
        "rotation": "rotvec",
        "low": -1,
        "high": 0.4,
    }
    with pytest.raises(ValueError, match=match):
        ActionGroup(**(facts | change))


def test_impossible_specifications_are_refused():
    group = arm_and_gripper().groups[0]
    with pytest.raises(ValueError, match="different names"):
        ActionSpec((group, group), 20)
    with pytest.raises(ValueError, match="rate_hz is 0"):
        ActionSpec((group,), 0)
    with pytest.raises(KeyError, match="leg"):
        arm_and_gripper().slice("leg")
