import numpy as np

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
