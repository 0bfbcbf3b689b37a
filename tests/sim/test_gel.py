import mujoco
import numpy as np
import pytest

from sim.gel import GRIP_N, PITCH_M, STIFFNESS_N_PER_M, GelGrip

SCENE = """
<mujoco>
  <option timestep="0.002" integrator="implicitfast" gravity="{gravity}"/>
  <worldbody>
    <body name="object">
      {joints}
      <geom type="box" size="0.008 0.008 0.03" mass="{mass}"/>
    </body>
  </worldbody>
  <sensor>
    {positions}
    {velocities}
  </sensor>
</mujoco>
"""


def held(mass, gravity, force=(0, 0, 0), torque=(0, 0, 0)):
    """Lets an object settle between fixed pads under a weight and a wrench; returns its grip and a log."""
    axes = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
    joints = [f'<joint name="gel_p{a}" type="slide" axis="{v}"/>' for a, v in axes.items()]
    joints += [f'<joint name="gel_r{a}" type="hinge" axis="{v}"/>' for a, v in axes.items()]
    names = [f"{kind}{axis}" for kind in "pr" for axis in "xyz"]
    positions = [f'<jointpos name="gel_{n}" joint="gel_{n}"/>' for n in names]
    speeds = [
        f'<jointvel name="gel_{n.replace("p", "v").replace("r", "w")}" joint="gel_{n}"/>' for n in names
    ]
    model = mujoco.MjModel.from_xml_string(
        SCENE.format(
            mass=mass,
            gravity=" ".join(map(str, gravity)),
            joints="".join(joints),
            positions="".join(positions),
            velocities="".join(speeds),
        )
    )
    grip = GelGrip(0.008)
    grip.configure(model)
    grip.bind(model)
    data = mujoco.MjData(model)
    data.xfrc_applied[1] = [*force, *torque]
    for _ in range(2000):
        mujoco.mj_step(model, data)
    return grip, np.tile(data.sensordata, (25, 1))


@pytest.mark.parametrize("tilt", [0.0, 0.4, 0.9])
def test_known_weight_on_tilted_pads_reads_normal_and_shear(tilt):
    """0.3 kg weigh 2.943 N: cos(tilt) of it is shear along the finger, sin(tilt) loads the left pad."""
    weight = 0.3 * 9.81
    grip, log = held(0.3, (0.0, 9.81 * np.sin(tilt), 9.81 * np.cos(tilt)))
    pads = grip.read(log)
    shear = sum(pad[..., 1].sum() for pad in pads.values())
    normal = pads["left"][..., 2].sum() - pads["right"][..., 2].sum()
    assert shear == pytest.approx(weight * np.cos(tilt), rel=0.1)
    assert normal == pytest.approx(weight * np.sin(tilt), rel=0.1, abs=0.02)
    assert pads["left"][..., 2].sum() + pads["right"][..., 2].sum() == pytest.approx(2 * GRIP_N, rel=1e-3)


def test_shear_across_is_mirrored_between_the_pads_frames():
    grip, log = held(0.1, (9.81, 0.0, 0.0))
    pads = grip.read(log)
    assert pads["left"][..., 0].sum() == pytest.approx(0.981 / 2, rel=0.1)
    assert pads["right"][..., 0].sum() == pytest.approx(-0.981 / 2, rel=0.1)


@pytest.mark.parametrize("axis", range(3))
def test_moment_of_the_pattern_is_the_torque(axis):
    """The taxels' forces times their lever arms add up to the torque on the object."""
    torque = np.zeros(3)
    torque[axis] = 0.1
    grip, log = held(0.05, (0, 0, 0), torque=torque)
    pads = grip.read(log)
    index = np.arange(4) - 1.5
    total = np.zeros(3)
    for side, pad in zip((1.0, -1.0), pads.values(), strict=True):
        z, x = np.meshgrid(index * PITCH_M[0], side * index * PITCH_M[1], indexing="ij")
        points = np.stack([x, np.full_like(x, side * 0.008), z], axis=-1)
        force = np.stack([side * pad[..., 0], side * pad[..., 2], pad[..., 1]], axis=-1)
        total += np.cross(points, force).sum(axis=(0, 1))
    np.testing.assert_allclose(total, torque, atol=2e-3)


def test_stiffness_by_hand():
    """32 taxels; about y each adds kx z^2 + kz x^2, with mean z^2 = 70.3 mm^2 and mean x^2 = 31.25 mm^2."""
    stiffness = GelGrip(0.008).stiffness
    np.testing.assert_allclose(stiffness[:3], 32 * STIFFNESS_N_PER_M)
    assert stiffness[4] == pytest.approx(32 * (2000 * 70.3125e-6 + 312.5 * 31.25e-6))


def test_scene_without_the_sensors_in_order_is_refused():
    sensors = "".join(f'<jointpos name="gel_{n}" joint="j"/>' for n in ("py", "px", "pz", "rx", "ry", "rz"))
    sensors += "".join(f'<jointvel name="gel_{n}" joint="j"/>' for n in ("vx", "vy", "vz", "wx", "wy", "wz"))
    body = '<body><joint name="j"/><geom size="0.1"/></body>'
    scene = f"<mujoco><worldbody>{body}</worldbody><sensor>{sensors}</sensor></mujoco>"
    with pytest.raises(ValueError, match="one after another"):
        GelGrip(0.008).bind(mujoco.MjModel.from_xml_string(scene))
