import json

import numpy as np
import pytest

from data.features import Feature, check_sample, differences, from_array, from_json, to_json

STATE = Feature((2,), "float32", "m", ("x", "y"))
IMAGE = Feature((4, 6, 3), "uint8", names=("height", "width", "channel"))


def test_features_survive_json():
    features = {"observation.state": STATE, "observation.images.top": IMAGE, "reward": Feature((), "float64")}
    assert from_json(json.loads(json.dumps(to_json(features)))) == features
    with pytest.raises(ValueError, match="'a' cannot be read"):
        from_json({"a": {"dtype": "float32"}})


def test_conventions_survive_json_and_older_descriptions_still_read():
    pose = Feature((8,), "float32", rotations=((3, "quaternion_xyzw"),), mode="absolute")
    features = {"pose": pose, "picture": Feature((3, 4, 6), "uint8", layout="chw")}
    assert from_json(json.loads(json.dumps(to_json(features)))) == features
    assert not features["picture"].is_image
    plain = to_json({"observation.state": STATE})["observation.state"]
    assert sorted(plain) == ["description", "dtype", "names", "shape", "unit"]


@pytest.mark.parametrize(
    ("shape", "conventions", "match"),
    [
        ((4, 6, 3), {"layout": "hcw"}, "layout is 'hcw'; allowed"),
        ((4, 6), {"layout": "hwc"}, "3 axes"),
        ((7,), {"mode": "relative"}, "mode is 'relative'"),
        ((7,), {"rotations": ((3, "euler"),)}, "'euler' is unknown"),
        ((7,), {"rotations": ((4, "quaternion_xyzw"),)}, "do not fit"),
        ((7,), {"rotations": ((-1, "rotvec"),)}, "do not fit"),
        ((7,), {"rotations": ((0, "quaternion_xyzw"), (3, "rotvec"))}, "do not fit"),
    ],
)
def test_impossible_conventions_are_refused(shape, conventions, match):
    with pytest.raises(ValueError, match=match):
        Feature(shape, "uint8", **conventions)


def test_a_convention_differs_only_where_both_sides_state_it():
    other = Feature((4,), "float32", rotations=((0, "quaternion_wxyz"),), mode="delta")
    here = Feature((4,), "float32", rotations=((0, "quaternion_xyzw"),))
    assert differences({"q": here}, {"q": Feature((4,), "float32")}) == []
    (line,) = differences({"q": here}, {"q": other})
    assert "rotations is ((0, 'quaternion_wxyz'),) in found" in line


def test_dimensions_have_names_for_messages():
    assert (STATE.size, STATE.dimension(1)) == (2, "y")
    assert IMAGE.is_image
    assert IMAGE.dimension(6 * 3 + 2) == "[1, 0, 2]"
    assert Feature((), "bool").dimension(0) == "scalar"
    with pytest.raises(IndexError, match="2 elements"):
        STATE.dimension(2)
    assert from_array(np.zeros((2, 3), np.int64)) == Feature((2, 3), "int64")


@pytest.mark.parametrize(
    ("shape", "dtype", "names", "match"),
    [
        ((0,), "float32", (), "positive sizes"),
        ((2,), "object", (), "'object' is not a plain number"),
        ((2,), "float33", (), "'float33'"),
        ((2,), "float32", ("x",), "1 names"),
        ((2, 3), "float32", ("a", "b", "c"), "one per axis"),
    ],
)
def test_impossible_features_are_refused(shape, dtype, names, match):
    with pytest.raises(ValueError, match=match):
        Feature(shape, dtype, names=names)


def test_differences_are_told_in_words_and_sorted_by_what_is_needed():
    found = {"observation.stat": STATE, "observation.images.top": Feature((4, 6, 3), "float32")}
    lines = differences(
        {"observation.state": STATE, "observation.images.top": IMAGE},
        found,
        expected_by="the policy",
        found_in="the env",
    )
    assert lines == [
        "'observation.state' is needed by the policy but missing in the env; "
        "did you mean 'observation.stat'?",
        "'observation.images.top': dtype is float32 in the env but uint8 in the policy.",
    ]


def test_units_and_names_are_compared_only_where_both_are_known():
    plain = Feature((2,), "float32")
    assert differences({"a": STATE}, {"a": plain}) == []
    assert len(differences({"a": STATE}, {"a": Feature((2,), "float32", "mm", ("y", "x"))})) == 2


def test_a_sample_is_checked_by_sensor_and_dimension():
    features = {"observation.state": STATE}
    check_sample({"observation.state": np.zeros(2, np.float32), "more": 1}, features)
    with pytest.raises(ValueError, match=r"missing from the arm.*never"):
        check_sample({}, features, source="the arm")
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        check_sample({"observation.state": np.zeros(3, np.float32)}, features)
    with pytest.raises(ValueError, match="is nan at y"):
        check_sample({"observation.state": np.array([0, np.nan], np.float32)}, features)
