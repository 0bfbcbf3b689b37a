"""Our sampler against LeRobot's own loop, on small random models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from policies.conformance import check_policy, random_request
from policies.hooks import DenoiseHook
from policies.lerobot.base import LeRobotChunkPolicy
from policies.loading import load
from policies.noise import step_noise_of
from policies.parity import Parity, check_parity, drawing
from policies.sampler import sample, sample_chunk
from tests.policies.lerobot.recipes import (
    ENVIRONMENT,
    RATE,
    STATE,
    cameras,
    clip,
    diffusion_config,
    feature,
    multi_task_dit_config,
    save,
)

TWO_CAMERAS = {STATE: feature("STATE", 4), **cameras("front", "wrist")}
DIFFUSION = {
    "ddim": {},
    "ddim-sample": {"prediction_type": "sample"},
    "ddim-unclipped": {"clip_sample": False},
    "ddim-one-observation": {"n_obs_steps": 1, "n_action_steps": 8},
    "ddpm": {"noise_scheduler_type": "DDPM"},
    "ddpm-sample": {"noise_scheduler_type": "DDPM", "prediction_type": "sample"},
    "ddpm-every-step": {
        "noise_scheduler_type": "DDPM",
        "num_inference_steps": None,
        "beta_schedule": "linear",
    },
    "cameras": {"input_features": TWO_CAMERAS, "use_group_norm": True, "crop_shape": (32, 32)},
    "shared-encoder": {
        "input_features": {**TWO_CAMERAS, ENVIRONMENT: feature("ENV", 6)},
        "use_separate_rgb_encoder_per_camera": False,
    },
}
MULTI_TASK = {
    "ddim": {},
    "ddpm-sample": {"noise_scheduler_type": "DDPM", "prediction_type": "sample"},
    "flow-euler": {"objective": "flow_matching", "num_integration_steps": 7},
    "flow-rk4": {"objective": "flow_matching", "integration_method": "rk4"},
    "flow-sigma-min": {
        "objective": "flow_matching",
        "sigma_min": 0.1,
        "input_features": {STATE: feature("STATE", 4)},
    },
}
CASES = [("diffusion", name) for name in DIFFUSION] + [("multi_task_dit", name) for name in MULTI_TASK]


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    return clip(tmp_path_factory.mktemp("parts") / "clip")


@pytest.fixture
def build(tmp_path, parts):
    def make(family: str, name: str) -> LeRobotChunkPolicy:
        changes = (DIFFUSION if family == "diffusion" else MULTI_TASK)[name]
        config = (
            diffusion_config(**changes) if family == "diffusion" else multi_task_dit_config(parts, **changes)
        )
        return load(save(config, tmp_path / name), rate_hz=RATE)

    return make


def noise_for(policy, rows=3, seed=5):
    return torch.randn(rows, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("family", "name"), CASES)
def test_our_sampler_gives_lerobots_chunk_bit_for_bit(build, family, name):
    policy = build(family, name)
    found = check_parity(policy)
    assert found.within(0.0), found
    assert found.positions == policy.spec.executed_steps
    check_policy(policy)


def test_a_difference_or_a_wrong_call_is_found():
    found = Parity("x", difference=1e-4, size=1.0, positions=4, steps=5, hook_calls=5, encoder_calls=1)
    assert found.within(1e-3)
    assert not found.within(1e-5)
    assert not Parity("x", 0.0, 1.0, 4, 5, hook_calls=4, encoder_calls=1).within()
    assert not Parity("x", 0.0, 1.0, 4, 5, hook_calls=5, encoder_calls=2).within()


class Push(DenoiseHook):
    """Adds a constant to the velocity of some rows at one step."""

    def __init__(self, at: int, by: torch.Tensor) -> None:
        self.at, self.by = at, by

    def step(self, state):
        return state.x, (state.velocity + self.by if state.index == self.at else state.velocity)


@pytest.mark.parametrize(
    ("family", "name"), [case for case in CASES if case[1] not in {"cameras", "shared-encoder"}]
)
def test_a_hook_does_what_the_same_change_does_in_lerobots_own_loop(build, family, name):
    policy = build(family, name)
    request, noise, step = random_request(policy, torch.Generator().manual_seed(1)), noise_for(policy), 1
    by = 0.1 * torch.tensor([1.0, -2.0, 0.0]).view(3, 1, 1).expand(noise.shape)
    hooked = sample(
        policy,
        policy.encode(request.observation),
        noise,
        [Push(step, by)],
        step_noise=step_noise_of(noise) if policy.spec.supports.step_noise else None,
    )
    network = policy.model.diffusion.unet if family == "diffusion" else policy.model.noise_predictor
    sigma = float(policy.sigmas()[step])
    if name.startswith("flow"):
        change = -by  # LeRobot's velocity is ours with the other sign
    else:
        change = -sigma * by if policy.predicts == "clean" else (1 - sigma) * by
    per_step = 4 if name == "flow-rk4" else 1
    calls = []

    def altered(module, inputs, output):
        calls.append(None)
        return output + change if (len(calls) - 1) // per_step == step else output

    fresh = step_noise_of(noise)
    drawn = [fresh(i) for i in range(len(policy.sigmas()) - 1)] if policy.spec.supports.step_noise else []
    with network.register_forward_hook(altered):
        theirs = policy.original(request.observation, noise, drawn)
    ours = hooked[:, policy.spec.first_action :][:, : theirs.shape[1]]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    plain = policy.original(request.observation, noise, drawn)
    assert (theirs[:2] - plain[:2]).abs().max() > 1e-3, "the change is seen"
    assert torch.equal(ours[2], plain[2]), "a row left alone stays as it was, to the bit"


@pytest.mark.parametrize(
    ("family", "name"),
    [("diffusion", "ddim"), ("diffusion", "ddpm-sample"), ("multi_task_dit", "flow-euler")],
)
def test_the_velocity_has_the_gradient_that_differences_show(build, family, name):
    policy = build(family, name)
    request = random_request(policy, torch.Generator().manual_seed(2))
    context = policy.encode(request.observation)
    policy.model.double()
    context = type(context)({key: value.double() for key, value in context.tensors.items()})
    x, weight = noise_for(policy, seed=6).double(), noise_for(policy, seed=7).double()
    sigma = torch.full((3,), 0.6, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((policy.velocity(leaf, sigma, context) * weight).sum(), leaf)
    for row, at, dim in ((0, 0, 0), (1, 3, 1), (2, 7, 0)):
        around = []
        for sign in (1, -1):
            moved = x.clone()
            moved[row, at, dim] += sign * 1e-6
            around.append((policy.velocity(moved, sigma, context) * weight).sum())
        assert float(gradient[row, at, dim]) == pytest.approx(float(around[0] - around[1]) / 2e-6, rel=1e-5)


class Gradient(DenoiseHook):
    """Takes the gradient of the decoded clean estimate at every step."""

    def __init__(self) -> None:
        self.gradients = []

    def needs_grad(self, index):
        return True

    def step(self, state):
        reached = state.policy.decode(state.clean, state.context)[0].sum()
        self.gradients.append(torch.autograd.grad(reached, state.leaf)[0])
        return state.x, state.velocity


@pytest.mark.parametrize(("family", "name"), [("diffusion", "ddpm"), ("multi_task_dit", "flow-rk4")])
def test_gradients_reach_a_hook_through_unnormalisation_and_only_in_their_row(build, family, name):
    policy = build(family, name)
    request, noise, hook = random_request(policy, torch.Generator()), noise_for(policy), Gradient()
    hooked = sample_chunk(policy, request, noise, [hook])
    assert len(hook.gradients) == len(policy.sigmas()) - 1
    assert all(g[0].abs().max() > 0 and not g[1:].any() for g in hook.gradients)
    assert torch.equal(hooked, policy.chunk(request, noise=noise)), "a hook that only looks changes no bit"


def test_step_noise_belongs_to_its_row_and_step():
    noise = torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(0))
    fresh = step_noise_of(noise)
    assert torch.equal(fresh(1)[1], step_noise_of(noise[1:2])(1)[0])
    assert not torch.equal(fresh(0), fresh(1))
    many = step_noise_of(torch.randn(200, 8, 2, generator=torch.Generator().manual_seed(1)))(0)
    assert abs(float(many.mean())) < 0.05
    assert float(many.std()) == pytest.approx(1, abs=0.05)


def test_drawing_gives_the_noises_in_order_and_counts_them():
    with drawing(torch.ones(2, 3), torch.zeros(1)):
        assert torch.equal(torch.randn(2, 3), torch.ones(2, 3))
        assert torch.equal(torch.randn(size=(1,)), torch.zeros(1))
    with pytest.raises(RuntimeError, match="drew 0 noises of 1"), drawing(torch.ones(1)):
        pass
    with pytest.raises(RuntimeError, match="draws more"), drawing():
        torch.randn(1)
    with pytest.raises(RuntimeError, match=r"shape \(2,\)"), drawing(torch.ones(1)):
        torch.randn((2,))


@pytest.mark.parametrize("steps", [0, 21])
def test_an_impossible_number_of_steps_is_refused(build, steps):
    with pytest.raises(ValueError, match=f"steps is {steps}"):
        build("diffusion", "ddim").sigmas(steps)


def test_encoders_and_tokenizers_of_the_hub_are_taken_from_a_folder(tmp_path, parts, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no network: do not try again
    name = "openai/clip-vit-base-patch16"
    folder = save(multi_task_dit_config(parts), tmp_path / "policy")
    for file in ("config.json", "policy_preprocessor.json"):
        path = folder / file
        path.write_text(path.read_text().replace(str(parts), name))
    policy = load(folder, rate_hz=RATE, local={name: parts})
    assert check_parity(policy).within()
    with pytest.raises(ValueError, match=r"local=\{NAME: FOLDER\}"):
        load(folder, rate_hz=RATE)


def test_a_text_changes_the_chunk_and_is_needed(build):
    policy = build("multi_task_dit", "ddim")
    request = random_request(policy, torch.Generator().manual_seed(4), rows=2)
    same = {**request.observation, STATE: request.observation[STATE][:1].expand(2, -1, -1)}
    same |= {key: value[:1].expand(2, *value.shape[1:]) for key, value in same.items() if "images" in key}
    context = policy.encode(same | {"task": ["put the peg in", "do task 1"]})
    assert not torch.equal(context["observation"][0], context["observation"][1])
    with pytest.raises(ValueError, match="reads a text"):
        policy.encode({key: value for key, value in same.items() if key != "task"})


def test_a_compiled_checkpoint_is_refused_or_loaded_uncompiled(tmp_path):
    config = diffusion_config()
    folder = save(config, tmp_path)
    plain = load(folder, rate_hz=RATE).hash()
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"compile_model": false', '"compile_model": true'))
    with pytest.raises(ValueError, match=r"hides its denoising from guidance.*compile_model=False"):
        load(folder, rate_hz=RATE)
    assert load(folder, rate_hz=RATE, compile_model=False).hash() == plain
