import numpy as np
import pytest

import sim
from sim.conformance import check_task
from sim.planar import DISC_RADIUS, PUSHER_RADIUS
from sim.push_disc import PushDisc
from sim.shifts import Shifts

SETUPS = {
    "plain": {},
    "wrench": {"wrench": True},
    "shifted": {
        "wrench": True,
        "shifts": Shifts(action_delay_steps=2, kick_probability=0.3, kick_force_n=3.0, friction_scale=1.5),
    },
}


def run_expert(env, seed, **how):
    """Runs one episode and returns its info dictionaries."""
    env.reset(seed=seed)
    expert = env.expert(seed, **how)
    infos = []
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(expert.act())
        assert reward == float(info["success"]) == float(terminated)
        infos.append(info)
        over = terminated or truncated
    return infos


def success_rate(seeds, **how):
    env = PushDisc()
    return np.mean([run_expert(env, seed, **how)[-1]["success"] for seed in seeds])


def place(env, pusher, disc):
    env.reset(seed=0)
    env.data.qpos[:] = [*pusher, *disc]
    env.data.qvel[:] = 0.0


@pytest.mark.parametrize("options", SETUPS.values(), ids=SETUPS)
def test_keeps_the_contract(options):
    check_task(lambda: PushDisc(**options))


def test_starts_where_the_fixture_says():
    env = sim.make("push-disc")
    starts = np.array([env.reset(seed=seed)[0]["observation.state"] for seed in range(200)])
    np.testing.assert_allclose(starts[:, [0, 2]], np.tile([-0.05, 0.08], (200, 1)), atol=1e-7)
    assert np.abs(starts[:, 1]).max() == pytest.approx(0.05, abs=0.002)
    assert np.abs(starts[:, 3]).max() == pytest.approx(0.03, abs=0.002)


def test_ten_control_steps_are_one_second():
    env = PushDisc()
    env.reset(seed=0)
    for _ in range(10):
        env.step(np.zeros(2))
    assert env.data.time == pytest.approx(1.0)
    assert env.action_spec.rate_hz == env.control_hz == 10.0


def test_success_is_the_true_distance_and_ends_the_episode():
    env = PushDisc()
    place(env, (-0.05, 0.0), (0.25 + 0.031, 0.0))
    _, reward, terminated, _, info = env.step(np.zeros(2))
    assert (reward, terminated, info["success"]) == (0.0, False, False)
    place(env, (-0.05, 0.0), (0.25, 0.029))
    _, reward, terminated, truncated, info = env.step(np.zeros(2))
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["goal_distance_m"] == pytest.approx(0.029, abs=1e-4)


def test_truncates_after_25_steps_without_terminating():
    env = PushDisc()
    env.reset(seed=0)
    ends = [env.step(np.zeros(2))[2:4] for _ in range(25)]
    assert ends[:24] == [(False, False)] * 24
    assert ends[24] == (False, True)


def test_expert_succeeds_always_and_spoiled_experts_as_measured():
    assert success_rate(range(60)) == 1.0
    assert 0.30 <= success_rate(range(80), bias=0.03, noise=0.4) <= 0.60
    assert success_rate(range(50), bias=0.06, noise=0.8) <= 0.20


def test_expert_recovers_from_in_front_of_the_disc():
    env = PushDisc()
    successes = []
    for seed in range(20):
        angle = np.linspace(-1.2, 1.2, 20)[seed]
        place(env, (0.10 + 0.05 * np.cos(angle), 0.05 * np.sin(angle)), (0.10, 0.0))
        expert = env.expert(seed)
        successes.append(any(env.step(expert.act())[4]["success"] for _ in range(25)))
    assert all(successes)


def test_what_the_expert_draws_does_not_follow_from_the_start_of_the_episode():
    env = PushDisc()
    pairs = []
    for seed in range(300):
        start = env.reset(seed=seed)[0]["observation.state"]
        pairs.append((start[1], env.expert(seed, bias=1.0)._error[1]))
    assert abs(np.corrcoef(np.transpose(pairs))[0, 1]) < 0.2


def test_constructor_sets_how_spoiled_the_expert_is_by_default():
    def actions(env, **how):
        env.reset(seed=2)
        expert = env.expert(2, **how)
        return [(action := expert.act(), env.step(action))[0] for _ in range(5)]

    spoiled = PushDisc(expert_bias_m=0.03, expert_noise=0.4)
    np.testing.assert_array_equal(actions(spoiled), actions(PushDisc(), bias=0.03, noise=0.4))
    np.testing.assert_array_equal(actions(spoiled, bias=0.0, noise=0.05), actions(PushDisc()))


@pytest.mark.parametrize("how", [{"bias": -0.1}, {"noise": -0.1}])
def test_expert_refuses_a_negative_spread(how):
    with pytest.raises(ValueError, match=r"-0\.1.*0 or more"):
        PushDisc().expert(0, **how)
    with pytest.raises(ValueError, match=r"-0\.1.*0 or more"):
        PushDisc(**{f"expert_{key}_m" if key == "bias" else f"expert_{key}": v for key, v in how.items()})


def test_wrench_is_the_force_that_moves_the_disc():
    env = PushDisc(wrench=True)
    place(env, (0.0, 0.0), (PUSHER_RADIUS + DISC_RADIUS, 0.0))
    for _ in range(4):  # get going
        env.step([0.02, 0.0])
    x, v = env.data.qpos[2], env.data.qvel[2]
    observation, *_, info = env.step([0.02, 0.0])
    # Impulse = mass * change of speed + damping * way + table friction * time, over 0.1 s of forward motion.
    impulse = 0.1 * (env.data.qvel[2] - v) + 1.5 * (env.data.qpos[2] - x) + 0.15 * 0.1
    force = observation["observation.wrench"]
    assert -force[0] == pytest.approx(impulse / 0.1, rel=0.03)
    np.testing.assert_allclose(force[1:], 0.0, atol=1e-6)
    assert info["contact_force_n"] >= -force[0]


def test_wrench_is_exactly_zero_without_contact_and_its_torque_follows_the_sliding():
    env = PushDisc(wrench=True)
    place(env, (0.0, 0.0), (0.2, 0.0))
    assert not np.any(env.step([0.01, 0.0])[0]["observation.wrench"])
    place(env, (0.0, 0.0), (PUSHER_RADIUS + DISC_RADIUS, 0.0))
    env.step([0.02, 0.0])
    wrench = env.step([0.02, 0.02])[0]["observation.wrench"]
    # The pusher slides to +y along the disc: friction holds it back at its front, (r, 0) x (fx, fy) = r fy.
    assert wrench[1] < 0.0
    assert wrench[5] == pytest.approx(PUSHER_RADIUS * wrench[1], rel=0.25)


def test_servo_bias_moves_where_a_zero_action_leads():
    env = PushDisc(shifts=Shifts(servo_bias_m=(0.0, 0.004, 0.0)))
    place(env, (-0.05, 0.0), (0.2, 0.0))
    env.step(np.zeros(2))
    moved = env.pusher - [-0.05, 0.0]
    assert 0.002 < moved[1] <= 0.0045
    assert moved[0] == pytest.approx(0.0, abs=1e-9)


def test_late_actions_take_effect_after_the_delay():
    env = PushDisc(shifts=Shifts(action_delay_steps=2))
    place(env, (-0.05, 0.0), (0.2, 0.0))
    positions = [(env.step([0.02, 0.0]), env.pusher[0])[1] for _ in range(3)]
    assert positions[:2] == pytest.approx([-0.05, -0.05], abs=1e-9)
    assert positions[2] > -0.04


def test_estimate_offset_moves_the_seen_disc_only():
    seen = PushDisc(shifts=Shifts(estimate_offset_m=(0.01, -0.02, 0.0))).reset(seed=5)[0]["observation.state"]
    true = PushDisc().reset(seed=5)[0]["observation.state"]
    np.testing.assert_allclose(seen - true, [0.0, 0.0, 0.01, -0.02], atol=1e-7)


def test_friction_and_payload_change_a_copy_of_the_shared_scene():
    plain, shifted = PushDisc(), PushDisc(shifts=Shifts(friction_scale=2.0, payload_kg=0.5))
    assert shifted.model is not plain.model
    assert PushDisc().model is plain.model
    np.testing.assert_allclose(shifted.model.dof_frictionloss, 2.0 * plain.model.dof_frictionloss)
    np.testing.assert_allclose(shifted.model.body("pusher").mass, plain.model.body("pusher").mass + 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cameras": ("wrist",)}, "'wrist'; allowed here: top"),
        ({"shifts": Shifts(servo_bias_m=(0.0, 0.0, 0.01))}, "nothing moves in z"),
        ({"shifts": Shifts(encoder_offset_rad=(0.1,) * 7)}, "no joint angles"),
    ],
)
def test_refuses_what_a_planar_pusher_cannot_have(options, message):
    with pytest.raises(ValueError, match=message):
        PushDisc(**options)


@pytest.mark.parametrize("task", ["push-disc", "push-two-routes"])
def test_reset_refuses_options(task):
    with pytest.raises(ValueError, match="'disc'; it has none"):
        sim.make(task).reset(options={"disc": 1})


@pytest.mark.usefixtures("rendering")
def test_top_camera_sees_pusher_and_disc_from_the_reset_on():
    env = PushDisc(cameras=("top",), image_size=(80, 80))
    picture = env.reset(seed=5)[0]["observation.images.top"].astype(float)
    env.close()
    red, _, blue = picture.transpose(2, 0, 1)
    for mask, (x, y) in (((blue > red + 40.0), env.pusher), ((red > blue + 40.0), env.disc)):
        row, column = np.argwhere(mask).mean(axis=0)
        seen = [0.1 + (column - 39.5) * 0.5 / 80.0, -(row - 39.5) * 0.5 / 80.0]  # 0.5 m wide around (0.1, 0)
        np.testing.assert_allclose(seen, [x, y], atol=0.012)
