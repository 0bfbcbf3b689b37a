import mujoco
import numpy as np
import pytest

from sim.control import CartesianConfig, InverseKinematics, ServoLimiter, ToolKinematics
from sim.env import load_model

HOME = np.array([0.0, -0.14, 0.0, -1.6, 0.0, 1.46, 0.785])


def dh(a, d, alpha, theta):
    """Craig's modified Denavit-Hartenberg transform."""
    c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
    return np.array(
        [[c, -s, 0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0, 0, 0, 1]]
    )


def test_kinematics_are_the_published_parameters():
    rows = [
        (0, 0.333, 0),
        (0, 0, -np.pi / 2),
        (0, 0.316, np.pi / 2),
        (0.0825, 0, np.pi / 2),
        (-0.0825, 0.384, -np.pi / 2),
        (0, 0, np.pi / 2),
        (0.088, 0, np.pi / 2),
    ]
    joints = np.array([0.3, -0.5, 0.2, -1.9, 0.4, 1.7, -0.6])
    pose = np.eye(4)
    for row, angle in zip(rows, joints, strict=True):
        pose = pose @ dh(*row, angle)
    pose = pose @ dh(0, 0.107 + 0.1034 + 0.05, 0, -np.pi / 4)
    tool = ToolKinematics(0.05)
    tool.update(joints)
    np.testing.assert_allclose(tool.position, pose[:3, 3], atol=1e-9)
    np.testing.assert_allclose(tool.rotation, pose[:3, :3], atol=1e-9)


def test_jacobian_is_the_derivative():
    tool = ToolKinematics(0.05)
    joints = HOME + 0.1
    tool.update(joints)
    jacobian = tool.jacobian()
    for i in range(7):
        step = np.eye(7)[i] * 1e-6
        tool.update(joints + step)
        plus = tool.position
        tool.update(joints - step)
        np.testing.assert_allclose((plus - tool.position) / 2e-6, jacobian[:3, i], atol=1e-6)


def test_one_iteration_follows_a_target_that_moves_8_mm():
    inverse = InverseKinematics(CartesianConfig(tool_length_m=0.05))
    tool = ToolKinematics(0.05)
    target = np.array([0.5, 0.0, 0.55])
    joints = inverse.solve(HOME, target, iterations=12)
    for step in range(20):
        target = target + np.array([0.006 if step % 4 < 2 else -0.006, -0.008, 0.008 if step % 2 else -0.008])
        joints = inverse.solve(joints, target)
        tool.update(joints)
        np.testing.assert_allclose(tool.position, target, atol=3e-4)
        np.testing.assert_allclose(tool.rotation, np.diag([1.0, -1.0, -1.0]), atol=2e-3)


def test_unreachable_target_stays_within_joint_limits():
    inverse = InverseKinematics(CartesianConfig())
    joints = HOME
    for _ in range(50):
        joints = inverse.solve(joints, np.array([1.5, 0.0, 0.2]))
    low, high = load_model("arm.xml").jnt_range[:7].T
    assert np.isfinite(joints).all()
    assert (joints > low).all()
    assert (joints < high).all()


def test_servo_limiter_bounds_the_lead_per_axis_and_keeps_the_rotation():
    tool = ToolKinematics(0.05)
    tool.update(HOME)
    jacobian = tool.jacobian()
    limiter = ServoLimiter(jacobian, 0.001)
    wanted = np.linalg.pinv(jacobian) @ [0.005, -0.0005, -0.002, 0.01, 0, 0]
    got = jacobian @ (limiter.limit(HOME + wanted, HOME) - HOME)
    np.testing.assert_allclose(got, [0.001, -0.0005, -0.001, 0.01, 0, 0], atol=1e-7)


def test_configuration_refuses_a_servo_lead_beyond_the_target_lead():
    with pytest.raises(ValueError, match=r"servo_lead_m is 0\.01"):
        CartesianConfig(servo_lead_m=0.01)


def test_limits_and_torques_are_the_published_ones():
    model = load_model("arm.xml")
    np.testing.assert_allclose(model.jnt_range[3], [-3.0718, -0.0698])
    np.testing.assert_allclose(model.jnt_range[5], [-0.0175, 3.7525])
    np.testing.assert_allclose(model.actuator_forcerange[:7, 1], [87] * 4 + [12] * 3)
    assert 15 < model.body_subtreemass[model.body("base").id] < 20
    assert model.actuator_gaintype[0] == mujoco.mjtGain.mjGAIN_FIXED
