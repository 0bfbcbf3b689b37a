import mujoco
import numpy as np
import pytest

from sim.tactile import ContactTouch, TactilePad, _bilinear

SLOTS = 'num="8" reduce="maxforce" data="force pos normal tangent"'

# A pad lies on its back, the pressed face up, tilted about its finger's axis; a block rests on it.
SCENE = """
<mujoco>
  <option timestep="0.002" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <body quat="{quat}">
      <geom name="pad_left" type="box" size="0.010 0.004 0.015"/>
      <geom name="pad_right" type="box" size="0.010 0.004 0.015" pos="0 0 1"/>
    </body>
    <body name="block" pos="{pos}" quat="{quat}">
      <freejoint/>
      <geom name="block" type="box" size="0.006 0.006 0.006" mass="0.2" friction="1.5"/>
    </body>
  </worldbody>
  <sensor>
    <contact name="touch_left" geom1="pad_left" geom2="block" {slots}/>
    <contact name="touch_right" geom1="pad_right" geom2="block" {slots}/>
    <framepos name="pad_left_position" objtype="geom" objname="pad_left"/>
    <framequat name="pad_left_quaternion" objtype="geom" objname="pad_left"/>
    <framepos name="pad_right_position" objtype="geom" objname="pad_right"/>
    <framequat name="pad_right_quaternion" objtype="geom" objname="pad_right"/>
  </sensor>
</mujoco>
"""


def rest(tilt, shift=(0.0, 0.0)):
    """Lets 0.2 kg settle on the pad, tilted by `tilt` rad about the finger's axis; returns model and log."""
    lay, turn, quat = np.zeros(4), np.zeros(4), np.zeros(4)
    mujoco.mju_axisAngle2Quat(lay, np.array([1.0, 0, 0]), -np.pi / 2)
    mujoco.mju_axisAngle2Quat(turn, np.array([0.0, 0, 1.0]), tilt)
    mujoco.mju_mulQuat(quat, lay, turn)
    position = np.zeros(3)
    mujoco.mju_rotVecQuat(position, np.array([shift[0], -0.0101, shift[1]]), quat)
    text = SCENE.format(slots=SLOTS, quat=" ".join(map(str, quat)), pos=" ".join(map(str, position)))
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    for _ in range(250):
        mujoco.mj_step(model, data)
    return model, np.tile(data.sensordata, (25, 1))


@pytest.mark.parametrize("tilt", [0.0, 0.3, -0.5])
def test_known_weight_on_a_tilted_pad_reads_normal_and_shear(tilt):
    """0.2 kg weigh 1.962 N: cos(tilt) of it is normal, sin(tilt) is shear across the finger."""
    model, log = rest(tilt)
    touch = ContactTouch(model).read(log)
    pad = touch["left"].sum(axis=(0, 1))
    weight = 0.2 * 9.81
    assert pad[2] == pytest.approx(weight * np.cos(tilt), rel=0.1)
    assert abs(pad[0]) == pytest.approx(weight * abs(np.sin(tilt)), rel=0.1, abs=0.01)
    assert pad[1] == pytest.approx(0.0, abs=0.01)
    assert not touch["right"].any()


def test_centre_of_pressure_follows_the_block():
    model, log = rest(0.0, shift=(0.001, -0.004))
    normal = TactilePad(model, "left").read(log)[..., 2].astype(float)
    index = np.arange(4) - 1.5
    assert (normal.sum(axis=0) @ index * 0.005) / normal.sum() == pytest.approx(0.001, abs=2e-4)
    assert (normal.sum(axis=1) @ index * 0.0075) / normal.sum() == pytest.approx(-0.004, abs=2e-4)


def test_bilinear_weights_by_hand():
    """At the centre four taxels share equally; on a taxel it takes all; outside the nearest corner does."""
    weights = _bilinear(np.array([0.0, 0.00375, 0.1]), np.array([0.0, -0.0075, 0.1])).reshape(3, 4, 4)
    np.testing.assert_allclose(weights[0, 1:3, 1:3], 0.25)
    assert weights[1, 2, 0] == pytest.approx(1.0)
    assert weights[2, 3, 3] == pytest.approx(1.0)
    np.testing.assert_allclose(weights.sum(axis=(1, 2)), 1.0)


def test_no_contact_reads_zero():
    model, log = rest(0.0)
    assert not TactilePad(model, "left").read(np.zeros_like(log)).any()
