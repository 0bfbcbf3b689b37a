import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.reach import RADIUS_M, Reach


def test_keeps_the_contract():
    check_task(Reach)


def test_expert_reaches_and_the_observation_points_at_the_ball():
    env = sim.make("reach")
    for seed in range(10):
        observation, _ = env.reset(seed=seed)
        expert = env.expert(seed)
        terminated = truncated = False
        while not (terminated or truncated):
            observation, reward, terminated, truncated, info = env.step(expert.act())
        assert info["success"]
        assert reward == 1.0
        pointer = observation["observation.environment_state"]
        assert np.linalg.norm(pointer) < RADIUS_M
        np.testing.assert_allclose(pointer + observation["observation.state"][:3], env.goal, atol=1e-6)


def test_reset_option_places_the_ball():
    env = sim.make("reach")
    env.reset(seed=0, options={"goal": [0.45, 0.1, 0.6]})
    np.testing.assert_array_equal(env.goal, [0.45, 0.1, 0.6])


def test_a_moving_ball_keeps_its_speed_and_turns_round_inside_the_box():
    check_task(lambda: Reach(goal_speed_m_s=0.2))
    env = Reach(goal_speed_m_s=0.5)
    env.reset(seed=1)
    goals = []
    for _ in range(50):
        env.step(np.zeros(3))
        goals.append(env.goal)
    steps = np.abs(np.diff(goals, axis=0))
    # A component that turns round rests for one step; the others go on.
    speed = np.abs(env.memory["goal_velocity"]) / env.control_hz
    assert (np.isclose(steps, speed) | (steps == 0)).all()
    assert (steps > 0).mean() > 0.8
    assert np.ptp(goals, axis=0).max() <= 0.3 + 1e-9
    assert np.linalg.norm(env.memory["goal_velocity"]) == pytest.approx(0.5)


def test_a_ball_that_rests_is_drawn_as_before():
    resting, moving = Reach(), Reach(goal_speed_m_s=0.1)
    resting.reset(seed=3)
    moving.reset(seed=3)
    np.testing.assert_array_equal(resting.goal, moving.goal)


def test_a_speed_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"goal_speed_m_s is -0.1; it must lie in 0 .. 1 m/s"):
        Reach(goal_speed_m_s=-0.1)
