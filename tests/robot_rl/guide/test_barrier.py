"""The latent policy barrier: its gradient, its equations, its gate, and that it leaves the rest alone."""

import json
from dataclasses import replace

import pytest
import torch

from policies.hooks import DenoiseHook
from policies.policy import PolicyError
from policies.request import ChunkRequest
from policies.sampler import sample, sample_chunk
from policies.variance_preserving import alpha_bar_of, view_scale
from robot_rl.guide.barrier import LatentBarrier, control_targets, nearest_distance
from robot_rl.guide.dynamics import LatentDynamics
from robot_rl.guide.hook import GuideModel
from robot_rl.guide.latents import Latents, LatentSource, choose_source
from robot_rl.task_texts import TaskTexts
from tests.policies.tools import A, ConstantVelocity, S, flow_policy, request

KEY = "observation.state"


def model(span: int = 3, seed: int = 0) -> GuideModel:
    """Dynamics with random weights, so that every action has a say."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        dynamics = LatentDynamics(S, span, A, hidden=16, layers=2)
        torch.nn.init.normal_(dynamics.write.weight, std=0.5)
        dynamics.action_std.fill_(0.01)
    return GuideModel(
        Latents(LatentSource(False, (KEY,)), torch.zeros(S), torch.ones(S), S),
        dynamics.requires_grad_(False).eval(),
    )


def barrier(threshold: float = 0.0, *, span: int = 3, **more) -> LatentBarrier:
    bank = torch.randn(12, S, generator=torch.Generator().manual_seed(1))
    return LatentBarrier(model(span), bank, threshold=threshold, **({"guided_steps": 2} | more))


def noise_for(policy, rows: int) -> torch.Tensor:
    return torch.randn(rows, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(2))


class Capture(DenoiseHook):
    """Stands before the barrier and keeps what it saw."""

    def __init__(self) -> None:
        self.states = {}

    def step(self, state):
        self.states[state.index] = state
        return state.x, state.velocity


@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "ddim"])
@pytest.mark.parametrize("change", [{"eta": 0.0}, {"threshold": 1e9}], ids=["no scale", "no row is far"])
def test_without_effect_the_base_is_repeated_to_the_bit(policy, change) -> None:
    hook = barrier(**({"span": policy.spec.executed_steps} | change))
    asked, noise = request(4), noise_for(policy, 4)
    assert torch.equal(sample_chunk(policy, asked, noise, [hook]), sample_chunk(policy, asked, noise)), (
        "through the live path"
    )
    assert bool(hook.info()["lpb.active"].any()) == ("eta" in change)


@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "ddim"])
def test_only_far_rows_change_and_each_as_if_it_were_alone(policy) -> None:
    asked, noise = request(4), noise_for(policy, 4)
    hook = barrier(span=policy.spec.executed_steps, eta=5.0)
    sample_chunk(policy, asked, noise, [hook])
    distance = hook.info()["lpb.distance"]
    hook.threshold = float(distance.sort().values[1:3].mean())
    guided, plain = sample_chunk(policy, asked, noise, [hook]), sample_chunk(policy, asked, noise)
    far = hook.info()["lpb.active"]
    assert far.tolist() == (distance > hook.threshold).tolist()
    assert int(far.sum()) == 2
    assert torch.equal(guided[~far], plain[~far])
    assert all(not torch.equal(guided[row], plain[row]) for row in far.nonzero().flatten())
    for row in range(4):
        alone = sample_chunk(policy, asked.rows([row]), noise[[row]], [hook])
        torch.testing.assert_close(alone[0], guided[row], atol=1e-6, rtol=1e-4)


def double(hook: LatentBarrier) -> LatentBarrier:
    latents = hook.model.latents
    hook.model.dynamics.double()
    hook._bank, hook._targets = hook._bank.double(), hook._targets.double()
    latents.mean, latents.std = latents.mean.double(), latents.std.double()
    return hook


def test_the_gradient_through_the_network_is_right_by_finite_differences() -> None:
    """What the hook moves x by, at its first guided step, against the slope of the distance it descends."""
    policy, hook, before = flow_policy().double(), double(barrier(eta=0.3)), Capture()
    asked, noise = ChunkRequest({KEY: request(2).observation[KEY]}), noise_for(policy, 2).double()
    moved = []

    class Guide(DenoiseHook):
        def needs_grad(self, index: int) -> bool:
            return hook.needs_grad(index)

        def step(self, state):
            moved.append(hook.step(state))
            return moved[-1]

    context = policy.encode(asked.observation)
    hook.begin_chunk(asked, policy, context)
    sample(policy, context, noise, [before, Guide()])
    state = before.states[2]
    x, sigma = state.x.detach(), state.sigma
    assert sigma == 0.5

    @torch.no_grad()
    def loss(at: torch.Tensor) -> torch.Tensor:
        velocity = policy.velocity(at, torch.full((2,), sigma, dtype=torch.float64), context)
        chunk = policy.decode(at - sigma * velocity, context)[:, :3]
        return nearest_distance(hook.model.dynamics(hook._latent, chunk), hook._targets)

    gradient = (x - moved[2][0].detach()) / (0.3 * 0.5 * 0.5**0.5)
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        place = tuple(int(torch.randint(size, (1,), generator=generator)) for size in x.shape)
        offset = torch.zeros_like(x)
        offset[place] = 1e-6
        slope = (loss(x + offset) - loss(x - offset))[place[0]] / 2e-6
        assert float(gradient[place]) == pytest.approx(float(slope), rel=1e-3, abs=1e-9)
    # The noise that the network saw stays: eps = x + (1 - sigma) v.
    torch.testing.assert_close(moved[2][0] + 0.5 * moved[2][1], state.x + 0.5 * state.velocity)


def test_the_step_is_that_of_the_paper_in_the_native_process() -> None:
    """x_t <- x_t - eta sqrt(1 - abar) g with the old noise, on DDIM's own state and by its own step."""
    policy = ConstantVelocity()
    eta, index = 0.7, 3
    hook, before = barrier(span=2, eta=eta, guided_steps=1), Capture()
    asked, noise = request(3), noise_for(policy, 3)
    context = policy.encode(asked.observation)
    table = policy.alpha_bars()
    native = noise
    for step in range(index):
        prediction = policy.predict_noise(native, table[step].expand(3), context)
        native = policy.scheduler_step(step, native, prediction, table, None)
    hook.begin_chunk(asked, policy, context)
    leaf = native.clone().requires_grad_(True)
    prediction = policy.predict_noise(leaf, table[index].expand(3), context)
    clean = (leaf - (1 - table[index]).sqrt() * prediction) / table[index].sqrt()
    predicted = hook.model.dynamics(hook._latent, policy.decode(clean, context)[:, :2])
    (gradient,) = torch.autograd.grad(nearest_distance(predicted, hook._targets).sum(), leaf)
    moved = native - eta * (1 - table[index]).sqrt() * gradient
    expected = policy.decode(policy.scheduler_step(index, moved, prediction.detach(), table, None), context)
    guided = sample_chunk(policy, asked, noise, [before, hook])
    torch.testing.assert_close(guided, expected, atol=1e-6, rtol=1e-4)
    assert not torch.allclose(guided, sample_chunk(policy, asked, noise), atol=1e-4)
    sigma = torch.tensor(before.states[index].sigma)
    torch.testing.assert_close(1 / view_scale(alpha_bar_of(sigma)), ((1 - sigma) ** 2 + sigma**2).sqrt())


def test_guidance_brings_the_predicted_latent_nearer() -> None:
    policy = flow_policy()
    hook = barrier(eta=0.3)
    asked, noise = request(6), noise_for(policy, 6)
    plain, guided = sample_chunk(policy, asked, noise), sample_chunk(policy, asked, noise, [hook])
    context = policy.encode(asked.observation)
    hook.begin_chunk(asked, policy, context)
    distance = [
        nearest_distance(hook.model.dynamics(hook._latent, chunk[:, :3]), hook._targets)
        for chunk in (plain, guided)
    ]
    assert bool((distance[1] < distance[0]).all())


def test_controls_keep_the_gate_and_change_the_pull() -> None:
    bank = torch.randn(200, S, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, S + 1)
    assert control_targets(bank, "expert", 0) is None
    shuffled = control_targets(bank, "shuffled", 0)
    assert torch.equal(shuffled.sort(dim=0).values, bank.sort(dim=0).values)
    assert not torch.equal(shuffled, bank)
    random = control_targets(bank, "random", 0)
    torch.testing.assert_close(random.std(0), bank.std(0), rtol=0.2, atol=0)
    policy, asked = flow_policy(), request(4)
    noise = noise_for(policy, 4)
    real, control = barrier(), barrier(targets=shuffled[:12])
    chunks = [sample_chunk(policy, asked, noise, [hook]) for hook in (real, control)]
    assert torch.equal(real.info()["lpb.distance"], control.info()["lpb.distance"])
    assert not torch.equal(*chunks)


def told(*texts: str) -> ChunkRequest:
    asked = request(len(texts))
    return replace(asked, observation={**asked.observation, "task": list(texts)})


def test_a_row_is_gated_by_and_pulled_to_the_frames_of_its_own_task() -> None:
    policy, texts = flow_policy(), TaskTexts(("left", "right"))
    near = request(2).observation[KEY][:, -1]
    far = near + 100.0
    hook = LatentBarrier(
        model(), torch.cat([near, far]), threshold=1.0, eta=0.3, guided_steps=2, texts=texts,
        owner=torch.tensor([0, 0, 1, 1]),
    )  # fmt: skip
    assert hook.keys == ("task",)
    noise = noise_for(policy, 2)
    plain = sample_chunk(policy, told("left", "right"), noise)
    chunk = sample_chunk(policy, told("left", "right"), noise, [hook])
    assert hook.info()["lpb.active"].tolist() == [False, True]
    assert torch.equal(chunk[0], plain[0])
    alone = LatentBarrier(model(), far, threshold=1.0, eta=0.3, guided_steps=2)
    torch.testing.assert_close(chunk[1], sample_chunk(policy, request(2), noise, [alone])[1])
    payload = json.loads(json.dumps(hook.payload()))
    again = LatentBarrier.from_payload(payload, {k: v.clone() for k, v in hook.tensors().items()})
    assert torch.equal(sample_chunk(policy, told("left", "right"), noise, [again]), chunk)


def test_a_task_without_a_bank_is_refused_by_name() -> None:
    policy, texts = flow_policy(), TaskTexts(("left", "right"))
    hook = barrier(texts=texts, owner=torch.arange(12) % 2)
    with pytest.raises(
        ValueError, match="'up' is none of those that this refiner was fitted on: 'left', 'ri"
    ):
        sample_chunk(policy, told("left", "up"), hooks=[hook])
    with pytest.raises(ValueError, match="lacks the task's text"):
        sample_chunk(policy, ChunkRequest({KEY: request(1).observation[KEY]}), hooks=[hook])
    with pytest.raises(ValueError, match="give owner"):
        barrier(texts=texts)
    with pytest.raises(ValueError, match="give owner"):
        barrier(texts=texts, owner=torch.arange(12) % 2, targets=torch.zeros(3, S))


def test_without_several_texts_it_is_saved_as_ever() -> None:
    hook = barrier()
    assert sorted(hook.payload()) == ["eta", "guided_steps", "model", "threshold"]
    assert "owner" not in hook.tensors()


def test_saved_and_read_back_it_guides_the_same() -> None:
    hook = barrier(eta=0.2, targets=torch.randn(5, S))
    payload = json.loads(json.dumps(hook.payload()))
    again = LatentBarrier.from_payload(payload, {k: v.clone() for k, v in hook.tensors().items()})
    policy, asked = flow_policy(), request(3)
    noise = noise_for(policy, 3)
    assert torch.equal(
        sample_chunk(policy, asked, noise, [hook]), sample_chunk(policy, asked, noise, [again])
    )


def test_what_does_not_fit_is_refused() -> None:
    policy = flow_policy()
    with pytest.raises(ValueError, match="executes 3 steps of a chunk, the latent dynamics know 2"):
        sample_chunk(policy, request(1), hooks=[barrier(span=2)])
    with pytest.raises(ValueError, match="guided_steps is 4, but the policy denoises in 4 steps"):
        sample_chunk(policy, request(1), hooks=[barrier(guided_steps=4)])
    with pytest.raises(ValueError, match="denoised in 7 steps, the policy's own number is 4"):
        sample_chunk(policy, request(1), hooks=[barrier()], steps=7)
    with pytest.raises(ValueError, match="eta is -1"):
        barrier(eta=-1)
    with pytest.raises(ValueError, match=r"lacks 'observation\.state'"):
        LatentSource(False, (KEY,)).raw({}, policy.encode(request(1).observation))


def test_pictures_are_measured_in_features_of_the_policys_own_encoder() -> None:
    policy = flow_policy(inputs=("observation.images.front", KEY))
    source = choose_source(policy, "auto")
    assert source == LatentSource(True, (KEY,))
    asked = request(2)
    context = policy.encode(asked.observation)
    raw, scene = source.raw(asked.observation, context)
    assert scene == 16
    assert torch.equal(raw, torch.cat([context["projected"], asked.observation[KEY][:, -1]], 1))
    only = flow_policy(inputs=("observation.images.front",))
    with pytest.raises(PolicyError, match="no vector observation"):
        choose_source(only, "state")
    with pytest.raises(PolicyError, match="guide it with latent state"):
        source.raw(asked.observation, object())
