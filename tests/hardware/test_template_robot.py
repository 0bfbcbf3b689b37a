"""The template of a robot, and the tests that a copy of it wants to keep."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.robot import Robot, RobotError, action_dict
from hardware.template_robot import BenchArm, StandIn


@pytest.fixture
def driver():
    return StandIn()


@pytest.fixture
def robot(driver):
    robot = BenchArm(driver)
    robot.connect()
    return robot


def to(robot, *angles):
    return robot.send_action(action_dict(robot.action_spec, angles))


def test_it_is_a_robot(driver):
    assert isinstance(BenchArm(driver), Robot)


def test_units_are_converted_at_the_edge(robot, driver):
    to(robot, math.pi / 6, -math.pi / 4)
    assert driver.degrees == pytest.approx([30, -45])
    np.testing.assert_allclose(robot.get_observation()["observation.state"], [math.pi / 6, -math.pi / 4])


def test_it_returns_what_it_sent_within_its_limits(robot, driver):
    assert to(robot, 9.0, -9.0) == {"arm.shoulder": 1.5, "arm.elbow": -2.0}
    assert driver.degrees == pytest.approx(np.degrees([1.5, -2.0]))


@pytest.mark.parametrize("silent", [None, [0.0, math.nan]])
def test_a_silent_arm_is_an_error(robot, driver, silent):
    driver.degrees = silent
    with pytest.raises(RobotError, match="no joint angles"):
        robot.get_observation()


def test_not_a_number_is_never_sent(robot, driver):
    with pytest.raises(ValueError, match="not a number"):
        to(robot, math.nan, 0.0)
    assert driver.degrees == [0.0, 0.0]


def test_nothing_moves_after_a_stop_until_connected_again(robot, driver):
    robot.stop("test")
    robot.stop("again")
    assert driver.held
    with pytest.raises(RobotError, match="stopped"):
        to(robot, 0.1, 0.0)
    robot.connect()
    to(robot, 0.1, 0.0)


def test_unconnected_it_says_so_and_can_still_be_stopped(driver):
    robot = BenchArm(driver)
    robot.stop("early")
    robot.disconnect()
    with pytest.raises(RobotError, match=r"connect\(\)"):
        robot.get_observation()
