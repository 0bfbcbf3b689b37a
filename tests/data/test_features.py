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
