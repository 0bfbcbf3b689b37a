import numpy as np
import pytest

from hardware.robot import Robot, RobotError, action_dict
from sim.reach import Reach
from sim.robot import SimRobot


def test_is_a_robot():
    robot = SimRobot("reach")
    assert isinstance(robot, Robot)
    assert robot.action_features == {"arm.x": float, "arm.y": float, "arm.z": float}
    assert robot.observation_features["observation.wrench"] == (6,)


def test_acts_like_the_task_it_wraps():
    robot, env = SimRobot("reach", seed=5), Reach()
    robot.connect()
    expected, _ = env.reset(seed=5)
    observation = robot.get_observation()
    assert observation.pop("task") == "reach the green ball"
    for _ in range(4):
        for key, value in expected.items():
            np.testing.assert_array_equal(observation[key], value)
        action = np.array([0.01, -0.5, 0.0])
        sent = robot.send_action(action_dict(env.action_spec, action))
        assert sent["arm.y"] == pytest.approx(-0.015)
        expected, *_ = env.step(action)
        observation = robot.get_observation()


def test_hands_out_copies():
    robot = SimRobot("reach")
    robot.connect()
    robot.get_observation()["observation.state"][:] = 7.0
    assert robot.get_observation()["observation.state"][0] != 7.0


def test_ignores_actions_after_a_stop_until_the_scene_is_set_up_again():
    robot = SimRobot("reach")
    robot.connect()
    robot.stop("a test")
    before = robot.get_observation()["observation.state"]
    action = dict.fromkeys(robot.action_features, 0.01)
    robot.send_action(action)
    np.testing.assert_array_equal(robot.get_observation()["observation.state"], before)
    robot.reset_scene()
    robot.send_action(action)
    assert robot.env.elapsed_steps == 1


def test_refuses_to_act_when_not_connected_and_other_environments():
    robot = SimRobot("reach")
    with pytest.raises(RobotError, match="call connect"):
        robot.get_observation()
    robot.connect()
    robot.disconnect()
    robot.disconnect()
    with pytest.raises(RobotError, match="not connected"):
        robot.send_action({})
    with pytest.raises(TypeError, match="CartPole"):
        SimRobot("CartPole-v1")
