import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.peg_insert import MAX_FORCE_N, PegInsert


@pytest.fixture(scope="module")
def env():
    return sim.make("peg-insert")


def run(env, expert):
    """Runs an episode to its end and returns the last info."""
    while True:
        _, _, terminated, truncated, info = env.step(expert.act())
        if terminated or truncated:
            return info


def equal(a, b):
    return all(np.array_equal(a[key], b[key]) for key in a)


def press(env, aside, steps=40):
    """Goes beside the hole by `aside` (2,) m and pushes down; returns what happens in contact."""
    env.reset(seed=1, options={"estimate_error": [*aside, 0.0]})
    seen = []
    for _ in range(steps):
        action = env.estimate - env.tool_position - env.lead
        action[2] = -0.002 if env.tool_position[2] > env.hole[2] + 0.003 else -0.0005
        observation, _, terminated, _, info = env.step(action)
        if info["contact"]:
            seen.append((observation, info))
        if terminated:
            break
    return seen


def test_keeps_the_contract():
    check_task(PegInsert)


@pytest.mark.parametrize("seed", range(4))
def test_blind_until_first_contact(env, seed):
    """Moving the hole under a fixed estimate changes no observation to the bit before the peg touches."""
    env.reset(seed=seed)
    moved = sim.make("peg-insert")
    moved.reset(seed=seed)
    state = env.save()
    moved.restore(state)
    moved.data.mocap_pos[0] += [0.003, -0.002, 0.0]
    blind = 0
    for _ in range(60):
        action = env.straight().act()
        a, _, _, _, info_a = env.step(action)
        b, _, _, _, info_b = moved.step(action)
        if info_a["contact"] or info_b["contact"]:
            break
        assert equal(a, b)
        blind += 1
    assert blind >= 8
    assert info_a["contact"] or info_b["contact"]
    assert not equal(a, b) or info_a["depth_m"] > 0


def test_estimate_is_off_as_stated(env):
    wide = sim.make("peg-insert", estimate_std_m=0.002)
    errors = []
    for seed in range(150):
        wide.reset(seed=seed)
        errors.append(wide.estimate - wide.hole)
    errors = np.array(errors)
    assert np.abs(errors).max() <= 2.5 * 0.002 + 1e-12
    np.testing.assert_allclose(errors.std(axis=0), 0.002, rtol=0.2)
    np.testing.assert_allclose(errors.mean(axis=0), 0.0, atol=6e-4)


def test_expert_succeeds_and_blind_trust_does_not(env):
    expert, straight = [], []
    for seed in range(20):
        env.reset(seed=seed)
        expert.append(run(env, env.expert(seed))["success"])
        env.reset(seed=seed)
        straight.append(run(env, env.straight())["success"])
    assert np.mean(expert) >= 0.95
    assert 0.1 <= np.mean(straight) <= 0.5


def test_expert_lifts_when_jammed(env):
    env.reset(seed=0)
    expert = env.expert(0)
    expert._goal = env.hole + np.array([0.003, 0.0, 0.0])
    heights, forces = [], []
    for _ in range(80):
        *_, info = env.step(expert.act())
        forces.append(info["contact_force_n"])
        heights.append(env.tool_position[2] - env.hole[2])
    assert max(forces) > 10
    first = int(np.argmax(np.array(forces) > 0))
    assert max(heights[first:]) > 0.001


def test_a_push_is_gentle_and_the_wrench_agrees_with_the_contact(env):
    seen = press(env, [0.0025, 0.0])
    observation, info = seen[-1]
    assert 5 < info["contact_force_n"] < 25
    assert info["max_contact_force_n"] < MAX_FORCE_N
    assert info["penetration_m"] < 0.0002
    assert observation["observation.wrench"][2] == pytest.approx(-info["contact_force_n"], rel=0.05)
    shear = sum(observation[f"observation.tactile.{side}"][..., 1].sum() for side in ("left", "right"))
    assert shear == pytest.approx(-info["contact_force_n"] + 0.05 * 9.81, rel=0.05)


@pytest.mark.parametrize(("axis", "torque"), [(0, 4), (1, 3)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_torque_points_to_the_hole(env, axis, torque, sign):
    aside = np.zeros(2)
    aside[axis] = sign * 0.002
    wrench = np.mean([o["observation.wrench"] for o, _ in press(env, aside)[4:]], axis=0)
    assert sign * wrench[torque] > 0.05


@pytest.mark.parametrize("worst", [[41.0, 0.0], [0.0, 0.00021]])
def test_too_much_force_or_overlap_fails_the_episode_even_in_the_step_of_success(env, worst):
    env.reset(seed=2)
    expert = env.expert(2)
    for _ in range(env.max_steps):
        before = env.save()
        action = expert.act()
        if env.step(action)[4]["success"]:
            break
    env.restore(before)
    env.memory["worst"] = np.array(worst)
    _, reward, terminated, truncated, info = env.step(action)
    assert info["depth_m"] > 0.016
    assert info["void"]
    assert (info["success"], reward, terminated, truncated) == (False, 0.0, True, False)


def test_worst_contact_is_taken_over_physics_steps(env):
    env.reset(seed=2)
    env.log[:] = 0.0
    run(env, env.expert(2))
    env.reset(seed=2)
    move = env.move

    def disturbed(delta, width):
        move(delta, width)
        env.log[7, env._rim] = 50.0
        env.log[9, env._rim + 3] = -0.0003

    env.move = disturbed
    *_, info = env.step(np.zeros(3))
    del env.move
    assert info["contact_force_n"] == pytest.approx(50.0)
    assert info["max_contact_force_n"] == pytest.approx(50.0)
    assert info["penetration_m"] == pytest.approx(0.0003)
    *_, info = env.step(np.zeros(3))
    assert info["contact_force_n"] == 0.0
    assert info["max_contact_force_n"] == pytest.approx(50.0)


def test_model_is_compiled_once(env):
    assert sim.make("peg-insert").model is env.model


def test_refuses_an_implausible_estimate():
    with pytest.raises(ValueError, match=r"estimate_std_m is 0\.5"):
        sim.make("peg-insert", estimate_std_m=0.5)
    for clip in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="estimate_clip_std is"):
            sim.make("peg-insert", estimate_clip_std=clip)
