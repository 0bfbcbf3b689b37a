"""An object held between two gel pads that it does not slip on: an elastic foundation under every taxel.

Each of the 2 x 16 taxels is a spring and damper between pad and object, along the normal and both shear
directions (a Winkler foundation). Summed up, they hold the object with six springs about the fingertips'
centre, diagonal by symmetry; the simulation integrates those six. A taxel's reading follows from the
object's displacement, so that force and torque on the object show as the pattern they would make on real
pads: shear, tilt, twist. Not modelled: slip and separation (a taxel reads no less than zero, but its spring
keeps pulling; at the forces the controller allows, both stay out of reach).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mujoco
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = COLUMNS = 4
PITCH_M = np.array([0.0075, 0.005])
"""Distance of rows (along the finger) and of columns (across it)."""
STIFFNESS_N_PER_M = np.array([2000.0, 2000.0, 312.5])
"""Of one taxel: across the finger, along the normal, along the finger.

Ribs across the pad make it soft along the finger, so that a peg that is set down is cushioned by 10 kN/m;
sideways the pads give 64 kN/m, soft enough that a peg that meets the wall of a hole at the arm's free speed
stays below 40 N.
"""
GRIP_N = 40.0
"""Force with which each pad presses on the object."""
DAMPING_S = 0.006
"""Damping over stiffness of every taxel, s."""
_ARMATURE = np.array([0.4, 0.4, 0.4, 6e-3, 6e-3, 6e-3])
"""Inertia of pads and finger carriages that moves with the object, kg and kg m^2. MuJoCo's contacts are as
stiff as the inertia behind them allows at 2 ms; with less, a push of 20 N would sink in by over 0.2 mm."""
JOINTS = ("px", "py", "pz", "rx", "ry", "rz")
_VELOCITIES = ("vx", "vy", "vz", "wx", "wy", "wz")


def _taxels(half_width_m: float, side: float) -> NDArray[np.float64]:
    """Positions (16, 3), m, hand frame at the fingertips, palm to tip; side is +1 left, -1 right."""
    index = np.arange(ROWS) - (ROWS - 1) / 2
    z, x = np.meshgrid(index * PITCH_M[0], side * index * PITCH_M[1], indexing="ij")
    return np.stack([x.ravel(), np.full(x.size, side * half_width_m), z.ravel()], axis=1)


class GelGrip:
    """Two pads that hold an object of a given width.

    Args:
        half_width_m: half the object's width between the pads.
    """

    def __init__(self, half_width_m: float) -> None:
        self._points = [_taxels(half_width_m, side) for side in (1.0, -1.0)]
        self._reading = np.array(
            [_reading(p, side) for p, side in zip(self._points, (1.0, -1.0), strict=True)]
        )
        self._address = slice(0, 0)

    @property
    def stiffness(self) -> NDArray[np.float64]:
        """Stiffness (6,) of the grip: N/m along x, y, z and N m/rad about them."""
        points = np.concatenate(self._points)
        x, y, z = (points**2).T
        kx, ky, kz = STIFFNESS_N_PER_M
        turning = [(ky * z + kz * y).sum(), (kx * z + kz * x).sum(), (kx * y + ky * x).sum()]
        return np.append(STIFFNESS_N_PER_M * len(points), turning)

    def configure(self, model: mujoco.MjModel) -> None:
        """Give joints `gel_px` ... `gel_rz` of a fresh model the grip's stiffness and damping."""
        for name, stiffness, armature in zip(JOINTS, self.stiffness, _ARMATURE, strict=True):
            joint = model.joint(f"gel_{name}")
            joint.stiffness[0] = stiffness
            model.dof_damping[joint.dofadr] = stiffness * DAMPING_S
            model.dof_armature[joint.dofadr] = armature
        mujoco.mj_setConst(model, mujoco.MjData(model))

    def bind(self, model: mujoco.MjModel) -> None:
        """Find the sensors of the six joints, which must follow each other: positions, then velocities."""
        addresses = [int(model.sensor(f"gel_{name}").adr[0]) for name in (*JOINTS, *_VELOCITIES)]
        if addresses != list(range(addresses[0], addresses[0] + 12)):
            raise ValueError(
                "the scene must list the sensors gel_px ... gel_rz, gel_vx ... gel_wz one after another."
            )
        self._address = slice(addresses[0], addresses[0] + 12)

    def read(self, log: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """Read both pads.

        Args:
            log: sensor data (substeps, n) of a control step.

        Returns:
            For "left" and "right" the taxel forces (4, 4, 3), N, mean over the step: shear across the finger,
            shear towards its tip, normal (positive when pressed). Rows run from palm to tip; x and columns
            are those of the pad's own frame, so that of the right pad is mirrored.
        """
        mean = log[:, self._address].mean(axis=0)
        force = self._reading @ (mean[:6] + DAMPING_S * mean[6:])
        force[:, :, 2] = np.maximum(force[:, :, 2] + GRIP_N / (ROWS * COLUMNS), 0.0)
        left, right = force.reshape(2, ROWS, COLUMNS, 3).astype(np.float32)
        return {"left": left, "right": right}


def _reading(points: NDArray[np.float64], side: float) -> NDArray[np.float64]:
    """Linear map (16, 3, 6) from the give to a pad's taxel forces, without the grip's own pressure."""
    moved = np.concatenate([np.broadcast_to(np.eye(3), (len(points), 3, 3)), _turning(points)], axis=2)
    force = STIFFNESS_N_PER_M[:, None] * moved
    return np.stack([side * force[:, 0], force[:, 2], side * force[:, 1]], axis=1)


def _turning(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Displacement (n, 3, 3) of points (n, 3) per small rotation: minus their cross-product matrices."""
    x, y, z = points.T
    zero = np.zeros_like(x)
    rows = [[zero, z, -y], [-z, zero, x], [y, -x, zero]]
    return np.moveaxis(np.array(rows), -1, 0)
