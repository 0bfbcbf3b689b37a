import math

import numpy as np
import pytest

from data.conventions import (
    ConventionError,
    convert,
    reorder_quaternion,
    to_absolute,
    to_delta,
    to_layout,
    unit_factor,
)
from data.features import Feature
from hardware.rotations import to_matrix


def test_pictures_change_layout_pixel_by_pixel():
    picture = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(5, 2, 3)  # five rows, two columns, three channels
    chw = to_layout(picture, "hwc", "chw")
    assert chw.shape == (3, 5, 2)
    assert chw[2, 4, 1] == picture[4, 1, 2]
    np.testing.assert_array_equal(to_layout(chw[None], "chw", "hwc"), picture[None])
    with pytest.raises(ConventionError, match="'hcw'"):
        to_layout(picture, "hcw", "hwc")


def test_a_quaternion_keeps_its_rotation_in_the_other_order():
    wxyz = np.array([[0.1, 0.2, 0.4, 0.889], [0.9, 0.3, -0.2, 0.245]])
    wxyz /= np.linalg.norm(wxyz, axis=1, keepdims=True)
    xyzw = reorder_quaternion(wxyz, "quaternion_wxyz", "quaternion_xyzw")
    np.testing.assert_array_equal(xyzw[0], wxyz[0, [1, 2, 3, 0]])
    np.testing.assert_allclose(
        to_matrix(xyzw, "quaternion_xyzw"), to_matrix(wxyz, "quaternion_wxyz"), atol=1e-12
    )
    np.testing.assert_array_equal(reorder_quaternion(xyzw, "quaternion_xyzw", "quaternion_wxyz"), wxyz)
    with pytest.raises(ConventionError, match=r"hardware.rotations.convert"):
        reorder_quaternion(wxyz, "quaternion_wxyz", "rotation_6d")


def test_a_pose_is_brought_to_another_description():
    source = Feature((8,), "float64", rotations=((3, "quaternion_wxyz"),))
    target = Feature((8,), "float32", rotations=((3, "quaternion_xyzw"),))
    pose = np.array([[1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.9, 7.0]])
    made = convert(pose, source, target)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made[0], [1, 2, 3, 0.2, 0.3, 0.9, 0.1, 7], rtol=1e-6)
    np.testing.assert_array_equal(pose[0], [1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.9, 7.0])


def test_a_picture_and_a_unit_are_brought_to_another_description():
    picture = np.arange(24, dtype=np.uint8).reshape(3, 4, 2)
    made = convert(picture, Feature((3, 4, 2), "uint8", layout="chw"), Feature((4, 2, 3), "uint8"))
    assert made[1, 0, 2] == picture[2, 1, 0]
    degrees = convert(np.array([90.0]), Feature((1,), "float64", "deg"), Feature((1,), "float64", "rad"))
    assert degrees[0] == pytest.approx(math.pi / 2)
    assert unit_factor("m", "mm") == pytest.approx(1000)
    with pytest.raises(ConventionError, match="No factor from 'N' to 'm'"):
        unit_factor("N", "m")


@pytest.mark.parametrize(
    ("source", "target", "match"),
    [
        (Feature((3,), "float64"), Feature((3,), "float64"), r"\(3,\) were announced"),
        (Feature((2,), "float64"), Feature((3,), "float64"), r"\(3,\) is needed"),
        (Feature((2,), "float64", mode="delta"), Feature((2,), "float64", mode="absolute"), "to_absolute"),
        (Feature((2,), "float64"), Feature((2,), "int64"), "int64 cannot hold"),
    ],
)
def test_what_cannot_be_converted_is_refused(source, target, match):
    with pytest.raises(ConventionError, match=match):
        convert(np.array([[0.5, 1.0]]), source, target)


def test_rotations_at_other_places_or_of_other_forms_are_refused():
    pose = np.ones((1, 7))
    here = Feature((7,), "float64", rotations=((3, "quaternion_wxyz"),))
    with pytest.raises(ConventionError, match="lie at"):
        convert(pose, here, Feature((7,), "float64", rotations=((0, "quaternion_wxyz"),)))
    with pytest.raises(ConventionError, match="changes the form"):
        convert(pose, here, Feature((7,), "float64", rotations=((3, "rotvec"),)))


def test_deltas_add_up_to_what_they_came_from():
    values = np.array([[1.0, -2.0], [1.5, -5.0], [0.5, -5.0]])
    deltas = to_delta(values, [0.75, 1.0])
    np.testing.assert_allclose(deltas, [[0.25, -3.0], [0.5, -3.0], [-1.0, 0.0]])
    np.testing.assert_allclose(to_absolute(deltas, [0.75, 1.0]), values)
