"""Fingertip touch from contacts: the forces on a pad, spread over its taxels.

Each contact force is shared between the four nearest taxel centres with bilinear weights (a soft skin
spreads a point load), so the sum over the pad is the exact contact force and, away from the rim, its centre
is the centre of pressure. Values are means over the control step. For an object that never leaves the hand
see `sim.gel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.gel import COLUMNS, PITCH_M, ROWS

if TYPE_CHECKING:
    import mujoco
    from numpy.typing import NDArray

CONTACTS = 8
"""Contact slots per pad; two boxes never touch in more."""


class ContactTouch:
    """Both pads of a scene with contact sensors `touch_left` and `touch_right` of 8 slots each.

    Args:
        model: the compiled scene.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self._pads = {side: TactilePad(model, side) for side in ("left", "right")}

    def read(self, log: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """Take a log (substeps, n) and return forces (4, 4, 3) in N for "left" and "right"."""
        return {side: pad.read(log) for side, pad in self._pads.items()}


class TactilePad:
    """One pad, read from a log of sensor data.

    Taxel values are forces on the pad in newtons: shear along the finger's width (x), shear along the finger
    towards its tip (y), and normal force, positive when pressed. Row 0 is nearest the palm; column 0 at
    negative x.
    """

    def __init__(self, model: mujoco.MjModel, side: str) -> None:
        start = int(model.sensor(f"touch_{side}").adr[0])
        self._touch = slice(start, start + CONTACTS * 12)
        self._position = _slice(model, f"pad_{side}_position")
        self._quaternion = _slice(model, f"pad_{side}_quaternion")

    def read(self, log: NDArray[np.float64]) -> NDArray[np.float32]:
        """Average a control step.

        Args:
            log: sensor data (substeps, n) of its physics steps.

        Returns:
            (4, 4, 3) N: shear x, shear y, normal.
        """
        slots = log[:, self._touch].reshape(-1, CONTACTS, 4, 3)
        step, slot = np.nonzero(slots[:, :, 0, 0])
        if not len(step):
            return np.zeros((ROWS, COLUMNS, 3), np.float32)
        contact = slots[step, slot]
        force, point = contact[:, 0], contact[:, 1]
        normal, tangent = contact[:, 2], contact[:, 3]
        axes = np.stack([normal, tangent, np.cross(normal, tangent)], axis=1)
        rotation = _matrices(log[step][:, self._quaternion])
        # The sensor reports the force on the second geom, the object.
        world = -np.einsum("nij,ni->nj", axes, force)
        local = np.einsum("nji,nj->ni", rotation, world)
        where = np.einsum("nji,nj->ni", rotation, point - log[step][:, self._position])
        # The pad's y axis points outwards (pressing is +y) and its z axis towards the fingertip.
        values = np.stack([local[:, 0], local[:, 2], local[:, 1]], axis=1)
        weights = _bilinear(where[:, 2], where[:, 0])
        result: NDArray[np.float32] = (
            (weights.T @ values / len(log)).reshape(ROWS, COLUMNS, 3).astype(np.float32)
        )
        return result


def _slice(model: mujoco.MjModel, name: str) -> slice:
    sensor = model.sensor(name)
    return slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0]))


def _bilinear(row_m: NDArray[np.float64], column_m: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (n, 16) of contacts at (row_m, column_m) from the pad's centre; each row sums to 1."""
    row, column = (
        np.clip(x / pitch + (ROWS - 1) / 2, 0, ROWS - 1)
        for x, pitch in zip((row_m, column_m), PITCH_M, strict=True)
    )
    index = np.arange(ROWS)
    by_row = np.maximum(0, 1 - np.abs(row[:, None] - index))
    by_column = np.maximum(0, 1 - np.abs(column[:, None] - index))
    weights: NDArray[np.float64] = np.einsum("nr,nc->nrc", by_row, by_column).reshape(len(row), -1)
    return weights


def _matrices(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrices (n, 3, 3) of unit quaternions (n, 4), order w, x, y, z."""
    w, x, y, z = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)
