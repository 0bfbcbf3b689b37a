"""Rotations between the forms that robots and policies speak; the quaternion order is always said.

Forms, each along the last axis of an array: ``rotvec`` (axis times angle, rad), ``quaternion_wxyz``,
``quaternion_xyzw``, ``rotation_6d`` (the first two columns of the matrix, one after the other: Zhou et al.
2019, "On the Continuity of Rotation Representations in Neural Networks", section 4.2), and ``matrix`` along
the last two. A matrix maps vectors of the body frame to the reference frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.spatial.transform import Rotation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

type Form = Literal["matrix", "rotvec", "quaternion_wxyz", "quaternion_xyzw", "rotation_6d"]

_SIZES: Mapping[str, int] = {"rotvec": 3, "quaternion_wxyz": 4, "quaternion_xyzw": 4, "rotation_6d": 6}
_QUATERNION_SLACK = 0.1
_MATRIX_SLACK = 1e-3
_DEGENERATE = 1e-6


def convert(rotation: ArrayLike, source: Form, target: Form) -> NDArray[np.float64]:
    """Bring rotations from one form to another.

    Quaternions come out with a real part >= 0 and rotation vectors with an angle of at most pi.

    Args:
        rotation: (..., n) in the source form, (..., 3, 3) for matrices.
        source: Form that is given.
        target: Form that is wanted.

    Returns:
        The same rotations, (..., n) or (..., 3, 3).

    Raises:
        ValueError: A form is unknown, a shape does not fit, or a value is no rotation.
    """
    return from_matrix(to_matrix(rotation, source), target)


def to_matrix(rotation: ArrayLike, form: Form) -> NDArray[np.float64]:
    """Rotation matrices (..., 3, 3) of rotations in some form; see `convert`."""
    value = _checked(rotation, form)
    if form == "matrix":
        return value
    if form == "rotation_6d":
        return _gram_schmidt(value)
    flat = value.reshape(-1, value.shape[-1])
    if form == "rotvec":
        made = Rotation.from_rotvec(flat)
    else:
        norms = np.linalg.norm(flat, axis=1)
        if flat.size and np.abs(norms - 1).max() > _QUATERNION_SLACK:
            worst = flat[int(np.abs(norms - 1).argmax())]
            raise ValueError(f"{form} {worst} has norm {np.linalg.norm(worst):.4g}; a rotation has norm 1.")
        made = Rotation.from_quat(flat if form == "quaternion_xyzw" else np.roll(flat, -1, axis=1))
    return made.as_matrix().reshape(*value.shape[:-1], 3, 3)


def from_matrix(matrix: ArrayLike, form: Form) -> NDArray[np.float64]:
    """Rotations in some form from matrices (..., 3, 3); see `convert`."""
    value = _checked(matrix, "matrix")
    if form == "matrix":
        return value
    if form == "rotation_6d":
        return np.concatenate([value[..., 0], value[..., 1]], axis=-1)
    _check_form(form)
    made = Rotation.from_matrix(value.reshape(-1, 3, 3))
    flat: NDArray[np.float64]
    if form == "rotvec":
        flat = made.as_rotvec()
    else:
        quaternion = made.as_quat(canonical=True)
        flat = quaternion if form == "quaternion_xyzw" else np.roll(quaternion, 1, axis=1)
    return np.asarray(flat.reshape(*value.shape[:-2], _SIZES[form]))


def turn(
    rotation: ArrayLike, form: Form, by: ArrayLike, *, frame: Literal["body", "reference"] = "reference"
) -> NDArray[np.float64]:
    """Turn rotations by small (or large) rotation vectors.

    Args:
        rotation: (..., n) in the form.
        form: Form of the rotations and of the result.
        by: Rotation vectors (..., 3), rad.
        frame: Frame that the vectors are given in.

    Returns:
        exp(by) R in the reference frame, R exp(by) in the body frame.

    Raises:
        ValueError: See `convert`; or the frame is unknown.
    """
    if frame not in {"body", "reference"}:
        raise ValueError(f"frame is {frame!r}; allowed: body, reference.")
    matrix, step = to_matrix(rotation, form), to_matrix(by, "rotvec")
    return from_matrix(step @ matrix if frame == "reference" else matrix @ step, form)


def angle_between(a: ArrayLike, b: ArrayLike, form: Form) -> NDArray[np.float64]:
    """Angle of the rotation that brings a to b, (...), rad, 0 to pi.

    Raises:
        ValueError: See `convert`.
    """
    between = np.swapaxes(to_matrix(a, form), -1, -2) @ to_matrix(b, form)
    return np.asarray(np.linalg.norm(from_matrix(between, "rotvec"), axis=-1))


def _checked(rotation: ArrayLike, form: str) -> NDArray[np.float64]:
    value = np.array(rotation, np.float64)
    _check_form(form)
    shape = (3, 3) if form == "matrix" else (_SIZES[form],)
    if value.shape[-len(shape) :] != shape:
        raise ValueError(f"A {form} has shape (..., {', '.join(map(str, shape))}), not {value.shape}.")
    if not np.isfinite(value).all():
        raise ValueError(f"A {form} holds {value[~np.isfinite(value)][0]}, which is no rotation.")
    if form == "matrix":
        off = np.abs(np.swapaxes(value, -1, -2) @ value - np.eye(3)).max(initial=0.0)
        if off > _MATRIX_SLACK or (np.linalg.det(value) < 0).any():
            raise ValueError(f"A matrix is off orthonormal by {off:.2g} or mirrors; it is no rotation.")
    return value


def _check_form(form: str) -> None:
    if form != "matrix" and form not in _SIZES:
        raise ValueError(f"Rotation form {form!r} is unknown; allowed: matrix, {', '.join(_SIZES)}.")


def _gram_schmidt(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = columns[..., :3], columns[..., 3:]
    x = first / _norm(first)
    rest = second - (x * second).sum(-1, keepdims=True) * x
    y = rest / _norm(rest)
    return np.stack([x, y, np.cross(x, y)], axis=-1)


def _norm(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = np.linalg.norm(vector, axis=-1, keepdims=True)
    if norm.size and norm.min() < _DEGENERATE:
        raise ValueError("A rotation_6d has a column of length 0 or two parallel columns; it is no rotation.")
    return np.asarray(norm)
