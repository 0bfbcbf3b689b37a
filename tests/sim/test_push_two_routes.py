import numpy as np
import pytest

from sim.conformance import check_task
from sim.push_two_routes import LEFT, NO_ROUTE, RIGHT, PushTwoRoutes


def run_expert(env, seed, **how):
    env.reset(seed=seed)
    expert = env.expert(seed, **how)
    over, routes = False, []
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act())
        routes.append(info["route"])
        over = terminated or truncated
    return expert.route, routes, info["success"]


def test_keeps_the_contract():
    check_task(lambda: PushTwoRoutes(wrench=True))


def test_expert_succeeds_by_either_route_and_info_names_it():
    env = PushTwoRoutes()
    episodes = [run_expert(env, seed) for seed in range(30)]
    for intended, routes, success in episodes:
        assert success
        assert routes[0] == NO_ROUTE
        assert routes[-1] == {"left": LEFT, "right": RIGHT}[intended]
        assert len({route for route in routes if route != NO_ROUTE}) == 1
    assert {intended for intended, *_ in episodes} == {"left", "right"}


def test_expert_draws_either_route_half_of_the_time_wherever_the_episode_starts():
    env = PushTwoRoutes()
    lefts, starts = [], []
    for seed in range(1000):
        starts.append(env.reset(seed=seed)[0]["observation.state"][1])
        lefts.append(env.expert(seed).route == "left")
    assert 0.45 < np.mean(lefts) < 0.55
    assert abs(np.corrcoef(lefts, starts)[0, 1]) < 0.1


@pytest.mark.parametrize(("blocked", "opened"), [("left", "right"), ("right", "left")])
def test_wall_blocks_one_route_and_the_expert_takes_the_other(blocked, opened):
    env = PushTwoRoutes(blocked=blocked)
    for seed in range(5):
        route, _, success = run_expert(env, seed)
        assert (route, success) == (opened, True)
        assert not run_expert(env, seed, route=blocked)[2]


def test_pushing_straight_ahead_runs_into_the_post():
    env = PushTwoRoutes()
    env.reset(seed=0)
    env.data.qpos[:] = [0.03, 0.0, 0.08, 0.0]
    for _ in range(40):
        *_, info = env.step([0.03, 0.0])
    assert not info["success"]
    assert env.disc[0] < 0.20 - 0.05
    assert info["contact_force_n"] > 1.0


def test_observation_does_not_show_the_wall():
    observations = [PushTwoRoutes(blocked=side).reset(seed=4)[0] for side in ("none", "left", "right")]
    assert [list(each) for each in observations] == [["observation.state"]] * 3
    for each in observations:
        np.testing.assert_array_equal(each["observation.state"], observations[0]["observation.state"])


def test_refuses_an_unknown_side():
    with pytest.raises(ValueError, match="'top'; allowed: 'none', 'left', 'right'"):
        PushTwoRoutes(blocked="top")
