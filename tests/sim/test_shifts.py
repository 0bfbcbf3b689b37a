import numpy as np
import pytest

import sim
from sim.shifts import Shifts


def rest(shifts, steps=30, action=(0.0, 0.0, 0.0), seed=4):
    env = sim.make("peg-insert", shifts=shifts)
    env.reset(seed=seed)
    for _ in range(steps):
        observation, *_ = env.step(action)
    return env, observation


@pytest.fixture(scope="module")
def plain():
    return rest(Shifts())


def test_wrench_is_free_of_bias_at_rest(plain):
    np.testing.assert_allclose(plain[1]["observation.wrench"], 0.0, atol=0.03)


def test_payload_weighs_on_the_wrench(plain):
    """0.5 kg in the hand pull with 4.905 N along the tool's z axis, which points down."""
    env, observation = rest(Shifts(payload_kg=0.5))
    assert observation["observation.wrench"][2] == pytest.approx(0.5 * 9.81, rel=0.02)
    assert env.model is not plain[0].model
    assert plain[0].model.body("payload").mass[0] < 1e-5


def test_servo_bias_moves_the_tool_away_from_the_target(plain):
    bias = np.array([0.001, -0.0005, 0.0])
    env, observation = rest(Shifts(servo_bias_m=tuple(bias)))
    np.testing.assert_allclose(env.tool_position - plain[0].tool_position, bias, atol=1e-4)
    np.testing.assert_allclose(observation["observation.state"][6:9], -bias, atol=1e-4)


def test_encoder_offset_makes_the_robot_believe_another_place(plain):
    env, observation = rest(Shifts(encoder_offset_rad=(0.01, 0, 0, 0, 0, 0, 0)))
    believed = env.tool_position
    true = env.data.site_xpos[env._tip]
    assert abs(believed[1] - true[1]) == pytest.approx(0.01 * believed[0], rel=0.1)
    assert observation["observation.state"][9] == pytest.approx(env.data.qpos[0] + 0.01, abs=1e-6)


def test_friction_scale_changes_a_copy(plain):
    env, _ = rest(Shifts(friction_scale=2.0), steps=1)
    np.testing.assert_allclose(env.model.pair_friction[:, :2], 2 * plain[0].model.pair_friction[:, :2])


def test_estimate_offset_is_added_to_the_drawn_error(plain):
    env, _ = rest(Shifts(estimate_offset_m=(0.002, 0.0, 0.0)), steps=1)
    np.testing.assert_allclose(env.estimate - plain[0].estimate, [0.002, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("task", "camera"), [("reach", "front"), ("reach", "wrist"), ("push-disc", "top")])
@pytest.mark.parametrize(
    "shift", [{"camera_offset_m": (0.02, 0.0, 0.0)}, {"camera_rotation_rad": (0.0, 0.05, 0.0)}]
)
def test_a_moved_camera_changes_the_pictures_of_its_environment_only(rendering, task, camera, shift):
    options = {"cameras": (camera,), "image_size": (48, 64)}
    before, _ = sim.make(task, **options).reset(seed=0)
    moved, _ = sim.make(task, shifts=Shifts(**shift), **options).reset(seed=0)
    after, _ = sim.make(task, **options).reset(seed=0)
    picture = f"observation.images.{camera}"
    assert np.abs(moved[picture].astype(int) - before[picture]).mean() > 0.5
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value)
        if key != picture:
            np.testing.assert_array_equal(moved[key], value)


def test_a_camera_moves_and_turns_in_its_own_frame():
    """The camera `top` looks straight down with y up: its frame is the world's."""
    plain = sim.make("push-disc").unwrapped.model.camera("top")
    shifts = Shifts(camera_offset_m=(0.01, -0.02, 0.03), camera_rotation_rad=(0.0, 0.0, np.pi / 2))
    moved = sim.make("push-disc", shifts=shifts).unwrapped.model.camera("top")
    np.testing.assert_allclose(moved.pos - plain.pos, [0.01, -0.02, 0.03], atol=1e-12)
    np.testing.assert_allclose(moved.quat, [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)], atol=1e-12)
    wrist, turned = (
        sim.make("reach", shifts=s).unwrapped.model.camera("wrist")
        for s in (Shifts(), Shifts(camera_offset_m=(0.01, 0.0, 0.0)))
    )
    # Its x axis is the hand's y axis.
    np.testing.assert_allclose(turned.pos - wrist.pos, [0.0, 0.01, 0.0], atol=1e-12)


def test_actions_are_late_by_whole_steps():
    plain, late = (sim.make("peg-insert", shifts=Shifts(action_delay_steps=n)) for n in (0, 2))
    actions = np.random.default_rng(0).uniform(-0.004, 0.004, (12, 3))
    plain.reset(seed=1)
    late.reset(seed=1)
    for action in (np.zeros(3), np.zeros(3), *actions):
        a, *_ = plain.step(action)
    for action in (*actions, np.zeros(3), np.zeros(3)):
        b, *_ = late.step(action)
    np.testing.assert_array_equal(a["observation.state"], b["observation.state"])


def test_kicks_push_the_arm_and_are_part_of_the_saved_state():
    env, _ = rest(Shifts(kick_probability=0.5), steps=10)
    state = env.save()
    first = [env.step(np.zeros(3))[0]["observation.state"] for _ in range(20)]
    assert np.ptp(first, axis=0)[:2].max() > 5e-5
    env.restore(state)
    again = [env.step(np.zeros(3))[0]["observation.state"] for _ in range(20)]
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"payload_kg": -1.0}, "payload_kg is -1.0"),
        ({"servo_bias_m": (1.0,)}, "give 3 numbers"),
        ({"camera_offset_m": (0.1, 0.2)}, "camera_offset_m is .* give 3 numbers"),
        ({"kick_probability": 1.5}, "must not exceed 1"),
    ],
)
def test_refuses_impossible_shifts(options, message):
    with pytest.raises(ValueError, match=message):
        Shifts(**options)


@pytest.mark.parametrize("wrong", [{"friction_scale": np.nan}, {"servo_bias_m": (0.0, np.inf, 0.0)}])
def test_shifts_that_are_not_finite_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*finite"):
        Shifts(**wrong)
