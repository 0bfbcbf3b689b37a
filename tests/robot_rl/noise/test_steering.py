"""Untrained it is the base, trained it stays in its bounds, and its density is that of what it draws."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import robot_rl
from policies.request import ChunkRequest
from robot_rl.control import run_wave
from robot_rl.noise.network import NoiseNetwork, SteeringConfig
from robot_rl.noise.preflight import RandomChoice
from robot_rl.noise.space import NoiseSpaceConfig, hat_basis, orthonormal
from robot_rl.noise.steering import SteeredNoise
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from tests.robot_rl.noise.pusher import STATE, Pusher, request
from tests.robot_rl.scripted import CountingEnv

SPACES = [NoiseSpaceConfig(parameters=kind, rank=2) for kind in ("full", "low-rank", "repeated")]
REPLACING = [replace(space, form="replace") for space in SPACES]


def network(space=SPACES[0], *, trained=False, keys=(STATE,), **config):
    shape = SteeringConfig(keys, horizon=4, width=3, actions=2, space=space, hidden=8, **config)
    made = NoiseNetwork(shape, np.zeros(2 * len(keys)), np.ones(2 * len(keys)))
    if trained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            torch.nn.init.normal_(made.head.weight)
            torch.nn.init.normal_(made.head.bias)
    return made


def drawn(rows=2):
    noise = torch.randn(rows, 4, 3, generator=torch.Generator().manual_seed(1))
    noise[0, 0, 0] = -0.0
    return noise


def bits(tensor):
    return tensor.numpy().tobytes()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.parameters)
def test_untrained_it_returns_the_drawn_noise_to_the_bit(space, deterministic):
    noise = drawn()
    chosen = SteeredNoise(network(space)).propose(request(), noise, deterministic=deterministic)
    assert bits(chosen) == bits(noise)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.parameters)
def test_untrained_it_is_the_base_in_the_live_loop_and_with_gain_0_trained_too(space):
    envs, seeds = [CountingEnv() for _ in range(3)], range(5, 8)
    bare = run_wave(envs, seeds, Pusher())
    for refiner, gain in ((network(space), 1.0), (network(space), 0.4), (network(space, trained=True), 0.0)):
        steered = run_wave(envs, seeds, Pusher(), Refiner(noise=SteeredNoise(refiner)), gain=gain)
        for one, other in zip(bare, steered, strict=True):
            assert one.action.tobytes() == other.action.tobytes()
            assert one.chunks[0].noise.tobytes() == other.chunks[0].noise.tobytes()


def test_a_gain_goes_part_of_the_way():
    refiner = Refiner(noise=SteeredNoise(network(trained=True)))
    whole, half, bare = (
        run_wave([CountingEnv()], [5], Pusher(), refiner, gain=gain)[0].chunks[0].noise
        for gain in (1, 0.5, 0)
    )
    np.testing.assert_allclose(half, (whole + bare) / 2, atol=1e-6)
    assert not np.allclose(whole, bare)


@pytest.mark.parametrize("space", SPACES + REPLACING, ids=lambda space: f"{space.form} {space.parameters}")
def test_padding_stays_as_drawn_and_the_mean_within_its_bound(space):
    noise, x, made = drawn(64), torch.randn(64, 2), network(space, trained=True)
    with torch.no_grad():
        chosen = made.steer(x, noise).noise
        still = made.steer(x, torch.zeros_like(noise)).noise
    assert bits(chosen[..., 2]) == bits(noise[..., 2])
    assert not torch.equal(chosen[..., :2], noise[..., :2])
    most = space.bound * (2 if (space.form, space.parameters) == ("edit", "low-rank") else 1)
    assert still.abs().max() <= most
    if space.form == "replace":
        assert chosen[..., :2].abs().max() <= space.bound + 1e-6


def test_what_is_not_chosen_stays_as_drawn():
    """Low-rank editing moves noise within the span of its directions alone."""
    made = network(SPACES[1], trained=True)
    noise = drawn()
    edit = (made.steer(torch.randn(2, 2), noise)[0] - noise)[..., :2]
    beside = torch.eye(4) - made.read.T @ made.read
    torch.testing.assert_close(beside @ edit, torch.zeros_like(edit), atol=1e-5, rtol=0)


def test_repeated_and_replaced_noise_is_one_vector():
    chosen = network(REPLACING[2], trained=True).steer(torch.randn(2, 2), drawn()).noise
    torch.testing.assert_close(chosen[..., :2], chosen[:, :1, :2].expand(-1, 4, -1))


def test_density_of_an_edit_is_that_of_the_narrowed_noise():
    """Mean of the returned number: - log spread per chosen number, 0 for the base's own noise."""
    made = network()
    made.head.bias.data[8:] = -0.5  # the second half are logarithms of the spread
    chosen, log_prob, _ = made.steer(torch.zeros(4096, 2), drawn(4096))
    log_spread = 4 * math.tanh(-0.5 / 4)
    assert chosen[..., :2].std().item() == pytest.approx(math.exp(log_spread), rel=0.02)
    torch.testing.assert_close(log_prob, torch.full((4096,), -8 * log_spread))
    assert network().steer(torch.zeros(2, 2), drawn())[1].abs().max() == 0


def test_density_of_a_replacement_is_that_of_a_squashed_normal():
    made = network(REPLACING[2], trained=True)
    x, noise = torch.zeros(1, 2), drawn(1).requires_grad_()
    chosen, log_prob, _ = made.steer(x, noise)
    jacobian = torch.autograd.functional.jacobian(lambda z: made.steer(x, z)[0][0, 0, :2], noise)[:, 0, :, :2]
    along = torch.einsum("kh,iha->ia", made.read, jacobian)  # d chosen / d read noise, (2, 2)
    read = torch.einsum("kh,ha->a", made.read, noise[0, :, :2])
    normal = -0.5 * read.square().sum() - math.log(2 * math.pi)
    wanted = normal - along.det().abs().log() + 2 * 0.5 * math.log(2 * math.pi * math.e)
    assert chosen.shape == (1, 4, 3)
    torch.testing.assert_close(log_prob[0], wanted, atol=1e-4, rtol=1e-4)


def test_both_mean_and_spread_can_move_from_the_start():
    made = network()
    chosen, log_prob, _ = made.steer(torch.ones(2, 2), drawn())
    (chosen.square().sum() + log_prob.sum()).backward()
    assert (made.head.bias.grad != 0).all()


def test_without_exploration_what_was_narrowed_is_narrowed_further():
    made = network(sharpness=2.0)
    made.head.bias.data[8:] = -1.0
    with torch.no_grad():
        free, sure = (
            made.steer(torch.zeros(512, 2), drawn(512), deterministic=flag)[0][..., :2].std().item()
            for flag in (False, True)
        )
    assert sure == pytest.approx(free**2, rel=0.1)


@pytest.mark.parametrize("space", [SPACES[1], REPLACING[2]], ids=lambda space: space.form)
def test_it_is_saved_and_read_back(tmp_path, space):
    part = SteeredNoise(network(space, trained=True))
    robot_rl.save_refiner(tmp_path, Refiner(noise=part))
    again = robot_rl.load_refiner(tmp_path).noise
    for deterministic in (False, True):
        one, other = (each.propose(request(), drawn(), deterministic=deterministic) for each in (part, again))
        assert torch.equal(one, other)


def test_it_may_read_what_the_base_does_not(tmp_path):
    shape = SteeringConfig((STATE, "observation.wrench"), 4, 3, 2, SPACES[0], hidden=8)
    made = NoiseNetwork(shape, np.zeros(3), np.ones(3))
    torch.nn.init.ones_(made.head.weight)
    (episode,) = run_wave([CountingEnv()], [5], Pusher(), Refiner(noise=SteeredNoise(made)))
    assert not episode.success or len(episode) > 0
    lacking = replace(shape, keys=(STATE, "observation.force"))
    with pytest.raises(ValueError, match=r"reads \['observation\.force'\], which the robot does not give"):
        run_wave([CountingEnv()], [5], Pusher(), Refiner(noise=SteeredNoise(NoiseNetwork(lacking, [0], [1]))))


def test_noise_of_another_shape_is_refused():
    shape = replace(network().config, horizon=5)
    other = SteeredNoise(NoiseNetwork(shape, np.zeros(2), np.ones(2)))
    with pytest.raises(ValueError, match=r"shape \(4, 3\); this noise policy was made for \(5, 3\)"):
        other.propose(request(), drawn(), deterministic=True)


def test_random_choices_fill_the_bound_evenly_and_leave_the_rest():
    choice = RandomChoice(network(REPLACING[0]))
    noise = drawn(4096)
    chosen = choice.propose(request(4096), noise, deterministic=False)
    assert bits(chosen[..., 2]) == bits(noise[..., 2])
    shares = np.histogram(chosen[..., :2], bins=5, range=(-1.5, 1.5))[0] / (4096 * 8)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


def test_bases_interpolate_and_stay_the_identity_where_everything_is_chosen():
    np.testing.assert_allclose(hat_basis(3, 5), [[1, 0.5, 0, 0, 0], [0, 0.5, 1, 0.5, 0], [0, 0, 0, 0.5, 1]])
    np.testing.assert_array_equal(orthonormal(hat_basis(6, 6)), np.eye(6))
    read = orthonormal(hat_basis(3, 5))
    np.testing.assert_allclose(read @ read.T, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(orthonormal(hat_basis(1, 4)), [[0.5] * 4], atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"bound": -1.0}, "bound is -1"),
        ({"form": "replace", "bound": 0.0}, "0.001 .."),
    ],
)
def test_senseless_spaces_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        NoiseSpaceConfig(**wrong)


def test_a_rank_above_the_horizon_is_refused():
    with pytest.raises(ValueError, match="rank is 5, above the horizon 4"):
        NoiseSpaceConfig(parameters="low-rank", rank=5).knots(4)


def test_it_steers_by_the_task_that_a_row_is_told(tmp_path):
    shape = SteeringConfig((STATE,), 4, 3, 2, SPACES[0], hidden=8, texts=("left", "right"))
    made = NoiseNetwork(shape, np.zeros(4), np.ones(4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.nn.init.normal_(made.head.weight)
    policy = SteeredNoise(made)
    assert policy.keys == (STATE, "task")
    seen = {STATE: torch.zeros(3, 1, 2), "task": ["left", "right", "left"]}
    noise = torch.zeros(3, 4, 3)
    chosen = policy.propose(ChunkRequest(seen), noise, deterministic=True)
    assert torch.equal(chosen[0], chosen[2])
    assert not torch.equal(chosen[0], chosen[1])
    save_refiner(tmp_path, Refiner(noise=policy))
    again = load_refiner(tmp_path).noise
    assert torch.equal(again.propose(ChunkRequest(seen), noise, deterministic=True), chosen)
    with pytest.raises(ValueError, match="'up' is none of those"):
        again.propose(ChunkRequest({**seen, "task": ["up"] * 3}), noise, deterministic=True)


def test_without_texts_it_is_saved_as_ever():
    assert "texts" not in SteeredNoise(network()).payload()
