import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.rotations import angle_between, convert, to_matrix, turn

FORMS = ["matrix", "rotvec", "quaternion_wxyz", "quaternion_xyzw", "rotation_6d"]
S = np.sqrt(0.5)
# A quarter turn about x: y becomes z. Asymmetric in every form, so that a wrong order shows.
QUARTER_X = {
    "matrix": [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
    "rotvec": [np.pi / 2, 0, 0],
    "quaternion_wxyz": [S, S, 0, 0],
    "quaternion_xyzw": [S, 0, 0, S],
    "rotation_6d": [1, 0, 0, 0, 0, 1],
}
vectors = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3).map(np.array)


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", FORMS)
def test_a_quarter_turn_is_the_same_in_every_form(source, target):
    np.testing.assert_allclose(convert(QUARTER_X[source], source, target), QUARTER_X[target], atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(vectors, st.sampled_from(FORMS), st.sampled_from(FORMS))
def test_a_rotation_survives_a_round_trip(rotvec, a, b):
    there = convert(rotvec, "rotvec", a)
    back = convert(convert(there, a, b), b, a)
    np.testing.assert_allclose(to_matrix(back, a), to_matrix(rotvec, "rotvec"), atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(vectors, vectors)
def test_a_turn_of_the_body_is_seen_from_the_reference_as_conjugated(start, by):
    matrix = to_matrix(start, "rotvec")
    body = turn(matrix, "matrix", by, frame="body")
    np.testing.assert_allclose(body, turn(matrix, "matrix", matrix @ by), atol=1e-9)
    np.testing.assert_allclose(body @ body.T, np.eye(3), atol=1e-9)


def test_frames_of_a_turn_differ_as_worked_by_hand():
    z = [0, 0, np.pi / 2]
    body = turn(QUARTER_X["matrix"], "matrix", z, frame="body")
    reference = turn(QUARTER_X["matrix"], "matrix", z, frame="reference")
    np.testing.assert_allclose(body @ [1, 0, 0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(reference @ [1, 0, 0], [0, 1, 0], atol=1e-12)


def test_a_turn_by_nothing_leaves_the_rotation():
    np.testing.assert_allclose(turn([0.1, 0.2, -0.3], "rotvec", [0, 0, 0]), [0.1, 0.2, -0.3], atol=1e-15)


@settings(deadline=None, max_examples=40)
@given(vectors, st.floats(1e-6, 3.1))
def test_the_angle_between_is_the_angle_of_the_turn(start, angle):
    turned = turn(start, "rotvec", [0, angle, 0])
    assert angle_between(start, turned, "rotvec") == pytest.approx(angle, abs=1e-7)
    assert angle_between(turned, turned, "rotvec") == pytest.approx(0, abs=1e-7)


def test_batches_are_the_single_rotations():
    many = np.random.default_rng(0).normal(size=(2, 3, 3))
    found = convert(many, "rotvec", "rotation_6d")
    assert found.shape == (2, 3, 6)
    for i in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[i], convert(many[i], "rotvec", "rotation_6d"))
    assert convert(np.zeros((0, 4)) + 1, "quaternion_wxyz", "matrix").shape == (0, 3, 3)


def test_6d_columns_of_any_length_and_angle_make_a_rotation():
    matrix = to_matrix([2.0, 0.0, 0.0, 5.0, 0.0, 0.1], "rotation_6d")
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(matrix[:, 0], [1, 0, 0])


@pytest.mark.parametrize(
    ("value", "form", "match"),
    [
        ([0, 0, 0, 0], "quaternion_wxyz", "norm 0"),
        ([1, 2, 3, 4], "quaternion_xyzw", "norm"),
        ([0, 0, 0, 1, 0, 0], "rotation_6d", "length 0"),
        ([1, 0, 0, 2, 0, 0], "rotation_6d", "parallel"),
        (np.diag([1, 1, -1]), "matrix", "mirrors"),
        (np.eye(3) * 1.1, "matrix", "orthonormal"),
        ([np.nan, 0, 0], "rotvec", "nan"),
        ([0, 0], "rotvec", r"shape \(\.\.\., 3\)"),
        ([0, 0, 0], "euler", "allowed: matrix"),
    ],
)
def test_what_is_no_rotation_is_refused(value, form, match):
    with pytest.raises(ValueError, match=match):
        convert(value, form, "matrix")
