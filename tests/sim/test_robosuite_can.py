import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.robosuite_can import RobosuiteCan

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def env():
    return sim.make("robosuite-can")


def run(env, expert, stop=lambda env: False):
    while True:
        observation, reward, terminated, truncated, info = env.step(expert.act())
        if terminated or truncated or stop(env):
            return observation, reward, terminated, info


def test_keeps_the_contract():
    check_task(RobosuiteCan)


def test_starts_differ_between_seeds_and_leave_numpys_generator_alone(env):
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the generator that robosuite draws from
    starts = [env.reset(seed=seed)[0]["observation.environment_state"][:2] for seed in range(6)]
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert np.ptp(starts, axis=0).min() > 0.02


def test_observes_what_robosuite_does(env):
    """robosuite's own sensors, asked without its lag of one physics step."""
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation, *_ = env.step([0.5, 0.2, -0.5, 0.0, 0.0, 0.3, -1.0])
    theirs = env._robosuite._setup_observables()
    state, around = observation["observation.state"], observation["observation.environment_state"]
    for name, ours in (
        ("robot0_eef_pos", state[:3]),
        ("robot0_eef_quat", state[3:7]),
        ("robot0_gripper_qpos", state[7:]),
    ):
        np.testing.assert_array_equal(ours, np.float32(theirs[name]._sensor({})))
    np.testing.assert_allclose(around[7:], around[:3] - state[:3], atol=1e-6)


def test_actions_move_the_tool_as_their_names_say(env):
    for axis in range(3):
        env.reset(seed=1)
        before = env.tool
        action = np.zeros(7)
        action[axis] = 0.5
        for _ in range(10):
            env.step(action)
        moved = env.tool - before
        assert moved[axis] > 0.03
        assert np.abs(np.delete(moved, axis)).max() < 0.02
    closed = []
    for closing in (1.0, -1.0):
        env.reset(seed=1)
        for _ in range(10):
            observation, *_ = env.step([0, 0, 0, 0, 0, 0, closing])
        closed.append(np.ptp(observation["observation.state"][7:]))
    assert closed[0] < 0.01 < 0.06 < closed[1]


def test_expert_succeeds(env):
    successes = []
    for seed in range(4):
        env.reset(seed=seed)
        _, reward, terminated, info = run(env, env.expert(seed))
        successes.append(info["success"])
        assert reward == float(info["success"])
        assert terminated == info["success"]
        assert info["in_bin"] == info["success"]
    assert np.mean(successes) >= 0.8


def test_expert_tries_again_after_losing_the_can(env):
    env.reset(seed=3)
    expert = env.expert(3)
    run(env, expert, stop=lambda env: expert._phase == "lift" and env.tool[2] > 0.92)
    for _ in range(8):
        _, *_, info = env.step([0, 0, 0, 0, 0, 0, -1])
    assert not info["held"]
    seen = set()
    *_, info = run(env, expert, stop=lambda env: seen.add(expert._phase))
    assert "down" in seen
    assert info["success"]


def test_a_can_in_the_hand_over_its_place_is_no_success_yet(env):
    env.reset(seed=0)
    expert = env.expert(0)
    _, reward, terminated, info = run(env, expert, stop=lambda env: expert._phase == "open")
    assert info["held"]
    assert (reward, terminated, info["success"]) == (0.0, False, False)


def test_pictures_come_from_robosuites_cameras(env, rendering):
    env.reset(seed=0)
    picture = env.picture("agentview", 48, 64)
    assert picture.shape == (48, 64, 3)
    assert picture.std() > 5
    green = (picture[..., 1] > 60) & (picture[..., [0, 2]].max(axis=-1) < 20)
    assert not green.any()  # robosuite colours what collides


def test_without_robosuite_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(ImportError, match=r"robosuite-can needs .*pip install 'robot-rl\[robosuite\]'"):
        sim.make("robosuite-can")
    assert logging.root.manager.disable == logging.NOTSET


def test_building_it_says_nothing_warns_of_nothing_and_sets_nothing():
    """In a process of its own: robosuite is imported only once."""
    code = (
        "import os, sim; before = dict(os.environ); env = sim.make('robosuite-can'); env.reset(seed=0);"
        "env.step(env.action_space.sample()); assert dict(os.environ) == before"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
