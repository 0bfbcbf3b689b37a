import numpy as np
import pytest

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from hardware.robot import Robot, action_array, action_dict, lerobot_features

SPEC = ActionSpec(
    (
        ActionGroup("arm", 2, "absolute", "joint", unit="rad", low=-1.0, high=1.0),
        ActionGroup("gripper", 1, "absolute", "gripper", low=0.0, high=1.0),
    ),
    20.0,
)


def test_actions_go_by_name_and_come_back_in_order():
    named = action_dict(SPEC, [0.1, -0.2, 1.0])
    assert named == {"arm.joint1": 0.1, "arm.joint2": -0.2, "gripper.opening": 1.0}
    shuffled = dict(reversed(named.items()))
    np.testing.assert_array_equal(action_array(SPEC, shuffled), [0.1, -0.2, 1.0])


def test_names_that_do_not_fit_are_told():
    with pytest.raises(ValueError, match=r"lacks \['arm.joint2'\] and has the unknown \['arm.joint3'\]"):
        action_array(SPEC, {"arm.joint1": 0, "arm.joint3": 0, "gripper.opening": 0})
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        action_dict(SPEC, [0, 0])


def test_features_become_those_of_lerobot():
    features = {"a": Feature((2, 3), "float32"), "b": Feature((), "float32")}
    assert lerobot_features(features) == {"a": (2, 3), "b": float}


def test_an_object_without_stop_is_no_robot():
    class Arm:
        name = "arm"
        features = observation_features = action_features = None
        action_spec, is_connected = SPEC, False

        def connect(self, calibrate=True): ...
        def get_observation(self): ...
        def send_action(self, action): ...
        def disconnect(self): ...

    assert not isinstance(Arm(), Robot)
    Arm.stop = lambda self, because: None
    assert isinstance(Arm(), Robot)
