import functools

import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.pick_place import PickPlace


@pytest.fixture(scope="module")
def env():
    return sim.make("pick-place")


def run(env, expert, stop=lambda env: False):
    while True:
        observation, _, terminated, truncated, info = env.step(expert.act())
        if terminated or truncated or stop(env):
            return observation, terminated, info


@pytest.mark.parametrize("options", [{}, {"bins": ("blue",), "told": "other"}])
def test_keeps_the_contract(options):
    check_task(functools.partial(PickPlace, **options))


def test_text_names_the_bin_and_survives_restore(env):
    env.reset(seed=0, options={"bin": "blue"})
    assert env.task_text == "put the can into the blue bin"
    state = env.save()
    env.reset(seed=0, options={"bin": "red"})
    assert env.task_text == "put the can into the red bin"
    env.restore(state)
    assert env.task_text == "put the can into the blue bin"
    with pytest.raises(ValueError, match="'green'; allowed: red, blue"):
        env.reset(seed=0, options={"bin": "green"})


def test_both_bins_are_drawn(env):
    texts = set()
    for seed in range(12):
        env.reset(seed=seed)
        texts.add(env.task_text)
    assert len(texts) == 2


@pytest.mark.parametrize("bins", ["blue", ["blue"], ("blue",)])
def test_one_bin_is_drawn_and_nothing_else_of_the_scene_changes(env, bins):
    one = sim.make("pick-place", bins=bins)
    for seed in range(6):
        both, only = env.reset(seed=seed)[0], one.reset(seed=seed)[0]
        assert one.task_text == "put the can into the blue bin"
        for key, value in both.items():
            np.testing.assert_array_equal(only[key], value)


@pytest.mark.parametrize("bins", ["blue,red", ("red", "blue")])
def test_both_bins_in_any_order_are_the_default(env, bins):
    both = sim.make("pick-place", bins=bins)
    for seed in range(6):
        env.reset(seed=seed)
        both.reset(seed=seed)
        assert both.task_text == env.task_text


def test_seeds_keep_their_bins():
    texts = []
    env = sim.make("pick-place")
    for seed in range(8):
        env.reset(seed=seed)
        texts.append(env.task_text.split()[-2])
    assert texts == ["blue", "red", "blue", "blue", "blue", "blue", "red", "blue"]


def test_the_wrong_text_names_the_other_bin_while_success_stays_with_the_drawn_one():
    lied_to = sim.make("pick-place", bins="red", told="other")
    lied_to.reset(seed=0)
    assert lied_to.task_text == "put the can into the blue bin"
    _, terminated, info = run(lied_to, lied_to.expert(0))
    assert terminated
    assert info["success"]
    assert info["in_red"]
    state = lied_to.save()
    lied_to.reset(seed=0, options={"bin": "blue"})
    assert lied_to.task_text == "put the can into the red bin"
    lied_to.restore(state)
    assert lied_to.task_text == "put the can into the blue bin"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": ("red", "green")}, r"bins is \('red', 'green'\); allowed: one or more of red, blue"),
        ({"bins": ()}, r"bins is \(\); allowed"),
        ({"bins": ""}, "bins is ''; allowed"),
        ({"told": "nothing"}, "told is 'nothing'; allowed: drawn, other"),
        ({"bin": "red"}, "no option 'bin'; did you mean"),
    ],
)
def test_other_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sim.make("pick-place", **options)


def test_expert_succeeds(env):
    successes = []
    for seed in range(8):
        env.reset(seed=seed)
        _, terminated, info = run(env, env.expert(seed))
        successes.append(info["success"])
        assert terminated == info["success"]
    assert np.mean(successes) >= 0.95


def test_the_other_bin_ends_the_episode_without_success(env):
    env.reset(seed=1, options={"bin": "red"})
    expert = env.expert(1)
    run(env, expert, stop=lambda e: expert._phase == "carry")
    env.memory["bin"] = np.array(1)
    run(env, expert, stop=lambda e: expert._phase == "lower")
    env.memory["bin"] = np.array(0)
    expert._lost = lambda: False
    expert._goal = lambda: (env.data.mocap_pos[1] + [0, 0, 0.07], 0.008)
    _, terminated, info = run(env, expert)
    assert terminated
    assert info["in_blue"]
    assert not info["success"]


def test_held_can_weighs_on_wrench_and_touch(env):
    """0.1 kg: 0.981 N along the tool's z axis at the wrist, and as shear towards the fingertips."""
    env.reset(seed=2)
    expert = env.expert(2)
    run(env, expert, stop=lambda e: expert._phase == "carry")
    for _ in range(15):
        observation, *_, info = env.step([0, 0, 0, 0])
    assert info["held"]
    assert observation["observation.wrench"][2] == pytest.approx(0.981, rel=0.1)
    shear = sum(observation[f"observation.tactile.{side}"][..., 1].sum() for side in ("left", "right"))
    assert shear == pytest.approx(0.981, rel=0.1)
    for side in ("left", "right"):
        assert observation[f"observation.tactile.{side}"][..., 2].sum() == pytest.approx(40.0, rel=0.05)


def test_expert_tries_again_after_losing_the_can(env):
    env.reset(seed=3)
    expert = env.expert(3)
    run(env, expert, stop=lambda e: expert._phase == "carry")
    for _ in range(8):
        env.step([0, 0, 0, 0.08])
    seen = set()
    _, _, info = run(env, expert, stop=lambda e: seen.add(expert._phase))
    assert "down" in seen
    assert info["success"]
