import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.pusht import PushT
from sim.pusht_pushes import Pushes

ROOT = Path(__file__).parents[2]
ALONG_THE_BAR = np.array([1.0, 1.0]) / np.sqrt(2)  # the goal is turned by 45 degrees


@pytest.fixture(scope="module")
def env():
    return sim.make("pusht")


def test_keeps_the_contract():
    check_task(PushT)


def test_starts_and_moves_as_gym_pusht_does(env):
    theirs = type(env.simulator)(obs_type="environment_state_agent_pos")
    targets = np.random.default_rng(0).uniform(100, 400, (30, 2))
    for seed in range(3):
        seen, known = env.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        for target in targets:
            np.testing.assert_array_equal(seen["observation.state"], known["agent_pos"].astype(np.float32))
            np.testing.assert_array_equal(
                seen["observation.environment_state"], known["environment_state"].ravel().astype(np.float32)
            )
            seen, *_, info = env.step(target)
            known, *_, said = theirs.step(target)
            assert info["coverage"] == round(said["coverage"], 6)
            assert info["success"] == said["is_success"]


@pytest.mark.parametrize(("shift", "success"), [(0.0, True), (2.0, True), (3.0, False)])
def test_success_is_more_than_95_percent_of_the_goal(env, shift, success):
    """The T is a bar of 120 x 30 px and a stem of 30 x 90 px; a shift s along it uncovers 120 s of 6300."""
    env.reset(seed=0)
    env.simulator.agent.position = (60.0, 60.0)
    goal = env.simulator.goal_pose
    env.simulator.block.angle = goal[2]
    env.simulator.block.position = tuple(goal[:2] + shift * ALONG_THE_BAR)
    _, reward, terminated, truncated, info = env.step([60.0, 60.0])
    assert info["coverage"] == pytest.approx(1 - 120 * shift / 6300, abs=1e-3)
    assert (info["success"], reward, terminated, truncated) == (success, float(success), success, False)


def test_an_episode_can_start_in_a_chosen_state(env):
    chosen = [60.0, 70.0, 200.0, 210.0, 0.3]
    observation, _ = env.reset(seed=1, options={"state": chosen})
    np.testing.assert_allclose(observation["observation.state"], chosen[:2])
    assert env.block[2] == pytest.approx(0.3)
    again, _ = env.reset(seed=2, options={"state": chosen})
    for key, value in observation.items():
        np.testing.assert_array_equal(again[key], value)
    with pytest.raises(ValueError, match=r"state is \[1, 2\]; give five numbers"):
        env.reset(options={"state": [1, 2]})
    with pytest.raises(ValueError, match="no reset option 'goal'"):
        env.reset(options={"goal": 0})


def test_the_state_of_another_simulation_is_refused(env):
    other = sim.make("push-disc")
    other.reset(seed=0)
    with pytest.raises(ValueError, match=r"memory.start of shape \(\)"):
        env.restore(other.save())


def test_expert_succeeds(env):
    successes = []
    for seed in range(10):
        env.reset(seed=seed)
        expert, done = env.expert(seed), False
        while not done:
            *_, terminated, truncated, info = env.step(expert.act())
            done = terminated or truncated
        successes.append(info["success"])
    assert np.mean(successes) >= 0.8


def test_expert_reads_and_changes_nothing(env):
    env.reset(seed=4)
    before = env.save()
    expert = env.expert(4)
    for _ in range(3):
        expert.act()
    for key, value in env.save().items():
        np.testing.assert_array_equal(value, before[key])


def test_a_tried_push_leaves_the_block_where_the_real_one_does(env):
    env.reset(seed=0, options={"state": [60.0, 60.0, 256.0, 256.0, 0.4]})
    pushes = Pushes(env.simulator)
    pose = env.block
    way, end = pushes.best(env.agent, pose)
    start = way[-1]
    direction = (end - start) / np.linalg.norm(end - start)
    tried = pushes.tried(pose, start, direction)[round(np.linalg.norm(end - start) / 4.0) - 1]
    env.simulator.agent.position = tuple(start)
    for share in np.linspace(0.0, 1.0, 12):
        env.step(start + share * (end - start))
    for _ in range(8):
        env.step(end)
    moved = np.linalg.norm(tried[:2] - pose[:2]) + 50 * abs(tried[2] - pose[2])
    missed = np.linalg.norm(env.block[:2] - tried[:2]) + 50 * abs(env.block[2] - tried[2])
    assert moved > 10
    assert missed < 0.25 * moved


def test_pictures_show_the_arena_in_the_middle(env):
    env.reset(seed=0)
    picture = env.picture("top", 96, 160)
    assert picture.shape == (96, 160, 3)
    assert (picture[:, :32] == 255).all()
    assert (picture[:, -32:] == 255).all()
    assert picture[:, 32:-32].std() > 5
    with pytest.raises(ValueError, match="'front'; allowed: 'top', -1"):
        env.picture("front")


def test_without_gym_pusht_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym_pusht.envs.pusht", None)
    with pytest.raises(ImportError, match=r"The task pusht needs .*pip install 'robot-rl\[pusht\]'"):
        sim.make("pusht")


def test_building_it_says_nothing_warns_of_nothing_and_sets_nothing():
    """In a process of its own: gym-pusht is imported only once."""
    code = (
        "import os, sim; before = dict(os.environ); env = sim.make('pusht'); env.reset(seed=0);"
        "env.picture(); assert dict(os.environ) == before;"
        "import pygame; assert not pygame.display.get_init()"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
