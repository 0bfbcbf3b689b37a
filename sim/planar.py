"""Parts of the planar scenes: a servo-driven pusher, discs, posts and walls on a table, seen from above.

Everything moves on slide joints in the plane z = `PLANE_HEIGHT`, where a sphere touches another exactly where
an upright cylinder of the same radius would. MuJoCo collides the spheres (in closed form, about five times
faster) and draws the cylinders.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mujoco
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

PLANE_HEIGHT = 0.02
TIMESTEP = 0.005
SUBSTEPS = 20
CONTROL_HZ = 10.0
MAX_OFFSET = 0.03

PUSHER_RADIUS = 0.015
PUSHER_MASS = 0.2
SERVO_GAIN = 300.0
SERVO_DAMPING = 20.0

DISC_RADIUS = 0.03
DISC_MASS = 0.1
DISC_DAMPING = 1.5
DISC_FRICTION = 0.15

_CAMERA_FOVY_DEG = 45.0
_BEHIND, _BEHIND_AT_LEAST, _ASIDE_AT_MOST = 0.048, 0.03, 0.009
_CLEAR_OF_DISC = 0.055


def planar_model(
    name: str, parts: Iterable[str], *, center: tuple[float, float], view: float
) -> mujoco.MjModel:
    """Compile a planar scene: no gravity, a pusher, the parts given, a table and the camera `top`.

    Args:
        name: model name.
        parts: MJCF of `disc`, `post`, `wall` and `goal_mark`.
        center: the point (x, y) under the camera, metres.
        view: height and width of what the camera sees on the table, metres.
    """
    x, y = center
    camera_height = 0.5 * view / math.tan(math.radians(0.5 * _CAMERA_FOVY_DEG))
    return mujoco.MjModel.from_xml_string(f"""
<mujoco model="{name}">
  <option timestep="{TIMESTEP}" gravity="0 0 0"/>
  <statistic center="{x} {y} 0" extent="{view}"/>
  <visual><headlight ambient="0.4 0.4 0.4" diffuse="0.6 0.6 0.6" specular="0 0 0"/></visual>
  <default>
    <default class="drawn"><geom type="cylinder" mass="0" contype="0" conaffinity="0" group="1"/></default>
    <default class="touching"><geom type="sphere" group="3"/></default>
    <default class="disc">
      <joint type="slide" damping="{DISC_DAMPING}" frictionloss="{DISC_FRICTION}"/>
    </default>
    <default class="pusher">
      <joint type="slide" damping="{SERVO_DAMPING}"/>
      <position kp="{SERVO_GAIN}"/>
    </default>
  </default>
  <worldbody>
    <camera name="top" pos="{x} {y} {camera_height}" fovy="{_CAMERA_FOVY_DEG}"/>
    <geom class="drawn" type="plane" pos="{x} {y} 0" size="1 1 0.1" rgba="0.86 0.86 0.84 1"/>
    {_round_body("pusher", "pusher", PUSHER_RADIUS, PUSHER_MASS, "0.2 0.35 0.75 1")}
    {"".join(parts)}
  </worldbody>
  <actuator>
    <position class="pusher" name="pusher_x" joint="pusher_x"/>
    <position class="pusher" name="pusher_y" joint="pusher_y"/>
  </actuator>
</mujoco>""")


def disc(name: str = "disc") -> str:
    """A disc that slides but does not turn, on the joints `<name>_x` and `<name>_y` (metres, world frame)."""
    return _round_body(name, "disc", DISC_RADIUS, DISC_MASS, "0.85 0.45 0.15 1")


def post(name: str, position: tuple[float, float], radius: float) -> str:
    """A fixed round post of this radius at (x, y), metres."""
    place = f'pos="{position[0]} {position[1]} {PLANE_HEIGHT}"'
    return f"""
    <geom class="touching" name="{name}" {place} size="{radius}"/>
    <geom class="drawn" {place} size="{radius} {PLANE_HEIGHT}" rgba="0.35 0.35 0.35 1"/>"""


def wall(name: str, start: tuple[float, float], end: tuple[float, float], thickness: float) -> str:
    """A fixed straight wall with rounded ends between two points (x, y), metres."""
    ends = f"{start[0]} {start[1]} {PLANE_HEIGHT} {end[0]} {end[1]} {PLANE_HEIGHT}"
    return f"""
    <geom name="{name}" group="1" type="capsule" fromto="{ends}" size="{0.5 * thickness}"
      rgba="0.35 0.35 0.35 1"/>"""


def goal_mark(position: tuple[float, float], radius: float) -> str:
    """The drawing of a goal circle at (x, y), metres; it touches nothing."""
    place = f'pos="{position[0]} {position[1]} 0.0005"'
    return f"""
    <geom class="drawn" {place} size="{radius} 0.0005" rgba="0.3 0.7 0.35 1"/>"""


def get_behind_and_push(
    pusher: NDArray[np.float64], obj: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The scripted rule of both planar experts: walk round to the far side of the disc, then push it along.

    Args:
        pusher: (2,) pusher centre, metres.
        obj: (2,) where the rule believes the disc to be, metres.
        target: (2,) where the disc should go, metres.

    Returns:
        (2,) servo target relative to the pusher, metres, each within +-`MAX_OFFSET`.
    """
    forward = (target - obj) / max(float(np.linalg.norm(target - obj)), 1e-6)
    left = np.array([-forward[1], forward[0]])
    along, aside = float((pusher - obj) @ forward), float((pusher - obj) @ left)
    side = 1.0 if aside >= 0.0 else -1.0
    if along < -_BEHIND_AT_LEAST and abs(aside) < _ASIDE_AT_MOST:
        offset = MAX_OFFSET * forward - aside * left
    elif along < -_BEHIND_AT_LEAST:
        offset = obj - _BEHIND * forward - pusher
    else:
        offset = (side * _CLEAR_OF_DISC - aside) * left - MAX_OFFSET * forward
    return np.clip(offset, -MAX_OFFSET, MAX_OFFSET)


def _round_body(name: str, joints: str, radius: float, mass: float, color: str) -> str:
    return f"""
    <body name="{name}" pos="0 0 {PLANE_HEIGHT}" childclass="{joints}">
      <joint name="{name}_x" axis="1 0 0"/>
      <joint name="{name}_y" axis="0 1 0"/>
      <geom class="touching" name="{name}" size="{radius}" mass="{mass}"/>
      <geom class="drawn" size="{radius} {PLANE_HEIGHT}" rgba="{color}"/>
    </body>"""
