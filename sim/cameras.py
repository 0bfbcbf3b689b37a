"""Cameras that are not quite where they were when the policy was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mujoco
import numpy as np

from sim.env import copy_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sim.shifts import Shifts


def with_moved_cameras(model: mujoco.MjModel, cameras: Iterable[str], shifts: Shifts) -> mujoco.MjModel:
    """Return the model itself, or a copy in which cameras are displaced and turned as the shifts say.

    Args:
        model: compiled scene; environments may share it, so it is not changed.
        cameras: names of the cameras to move, each fixed to its body; those a scene lacks are passed over.
        shifts: offset (m) and rotation vector (rad), both in the camera's own frame; the physics do not
            change.
    """
    if not shifts.moves_cameras:
        return model
    moved = copy_model(model)
    turn = _quaternion(np.array(shifts.camera_rotation_rad))
    for name in cameras:
        index = mujoco.mj_name2id(moved, mujoco.mjtObj.mjOBJ_CAMERA, name)
        if index < 0:
            continue
        offset, turned, old = np.empty(3), np.empty(4), moved.cam_quat[index].copy()
        mujoco.mju_rotVecQuat(offset, np.array(shifts.camera_offset_m), old)
        mujoco.mju_mulQuat(turned, old, turn)
        moved.cam_pos[index] += offset
        moved.cam_quat[index] = turned
    return moved


def _quaternion(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit quaternion (4,), w first, of a rotation vector (3,) in rad."""
    angle = float(np.linalg.norm(vector))
    quaternion = np.empty(4)
    mujoco.mju_axisAngle2Quat(quaternion, vector / angle if angle else np.array([0.0, 0.0, 1.0]), angle)
    return quaternion
