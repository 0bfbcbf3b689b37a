"""Latent guidance of LeRobot's Diffusion Policy, small and random, in features of its own encoder."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("lerobot", reason="the extra lerobot is not installed")

from policies.conformance import random_request
from policies.loading import load
from policies.noise import step_noise_of
from policies.sampler import sample_chunk
from robot_rl.guide.barrier import LatentBarrier
from robot_rl.guide.dynamics import LatentDynamics
from robot_rl.guide.hook import GuideModel
from robot_rl.guide.latents import Latents, choose_source
from robot_rl.guide.phases import PhaseConfig, PhaseTargets
from robot_rl.guide.reguide import PhaseGuide
from tests.policies.lerobot.recipes import RATE, STATE, cameras, diffusion_config, feature, save

CAMERAS = {
    "input_features": {STATE: feature("STATE", 4), **cameras("front", "wrist")},
    "use_group_norm": True,
    "crop_shape": (32, 32),
}
IDS = ("a", "b", "c")


def model(policy, context, observation) -> GuideModel:
    source = choose_source(policy, "auto")
    raw, scene = source.raw(observation, context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dynamics = LatentDynamics(
            raw.shape[1], policy.spec.executed_steps, policy.spec.action_size, hidden=8, layers=1
        )
        torch.nn.init.normal_(dynamics.write.weight, std=0.5)
    return GuideModel(Latents.fit(source, raw.detach(), scene), dynamics.requires_grad_(False).eval())


@pytest.mark.parametrize(
    "kind", [{}, {"noise_scheduler_type": "DDPM"}, CAMERAS], ids=["ddim", "ddpm", "cameras"]
)
@pytest.mark.parametrize("method", ["lpb", "reguide"])
def test_rows_that_are_not_gated_stay_lerobots_own_to_the_bit(tmp_path, kind, method) -> None:
    policy = load(save(diffusion_config(**kind), tmp_path), rate_hz=RATE)
    generator = torch.Generator().manual_seed(0)
    asked = replace(random_request(policy, generator, 3), episode_ids=IDS)
    noise = torch.randn(3, *policy.spec.noise_shape, generator=generator)
    fresh = step_noise_of(noise) if policy.spec.supports.step_noise else None
    with torch.no_grad():
        context = policy.encode(asked.observation)
    parts = model(policy, context, asked.observation)
    assert parts.latents.source.features == (kind is CAMERAS)
    latent = parts.latents.encode(asked.observation, context)
    if method == "lpb":
        hook = LatentBarrier(parts, latent[[0]] + 1e-3, threshold=0.5, eta=5.0, guided_steps=2)
    else:
        flat = torch.ones(1)
        goals = latent[[0]][None]
        targets = PhaseTargets(goals, torch.ones(1, 1, dtype=torch.bool), flat, flat, 1e9 * flat, -1e9 * flat)
        hook = PhaseGuide(parts, targets, PhaseConfig(phases=1), scale=5.0, guided_steps=2)
    plain = sample_chunk(policy, asked, noise, step_noise=fresh)
    guided = sample_chunk(policy, asked, noise, [hook], step_noise=fresh)
    gated = hook.info()[f"{method}.active"]
    if method == "lpb":
        assert gated.tolist() == [False, True, True]
    assert bool(gated.any())
    assert torch.equal(guided[~gated], plain[~gated])
    assert all(not torch.equal(guided[row], plain[row]) for row in gated.nonzero().flatten())
