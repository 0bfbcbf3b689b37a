from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from policies.noise import draw_noise
from policies.request import ActionBatch, ChunkRequest
from tests.policies.tools import FEATURES, SPEC, flow_policy, request, statistics

ALL = ("observation.state", "observation.tactile.left", "observation.images.front", "task")


def test_same_noise_same_chunk_and_other_noise_another(policy, chunk_request, noise) -> None:
    first = policy.chunk(chunk_request, noise=noise)
    assert torch.equal(first, policy.chunk(chunk_request, noise=noise))
    assert not torch.equal(first, policy.chunk(chunk_request, noise=-noise))
    assert first.shape == (4, 6, 3)


def test_noise_none_follows_the_global_generator(policy, chunk_request) -> None:
    chunks = []
    for _ in range(2):
        torch.manual_seed(5)
        chunks.append(policy.chunk(chunk_request))
    assert torch.equal(*chunks)


@pytest.mark.parametrize("inputs", [("observation.state",), ALL])
def test_batch_of_eight_equals_eight_singles(inputs, device) -> None:
    policy = flow_policy(inputs=inputs, observation_steps=2, hidden=64).to(device).eval()
    asked = request(8, steps=2)
    noise = draw_noise(policy.spec, [np.random.default_rng(i) for i in range(8)], device)
    together = policy.chunk(asked, noise=noise)
    for row in range(8):
        alone = policy.chunk(asked.rows([row]), noise=noise[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5 * float(together.abs().max()), rtol=0)


@pytest.mark.parametrize("key", ALL)
def test_every_input_matters_and_none_may_be_missing(key) -> None:
    policy = flow_policy(inputs=ALL).eval()
    asked, noise = request(2), torch.zeros(2, 6, 3)
    plain = policy.chunk(asked, noise=noise)
    other = dict(asked.observation)
    other[key] = other[key][::-1] if key == "task" else other[key].flip(0)
    assert not torch.equal(plain, policy.chunk(ChunkRequest(other), noise=noise))
    del other[key]
    with pytest.raises(ValueError, match=key):
        policy.chunk(ChunkRequest(other), noise=noise)


def test_only_configured_inputs_are_read() -> None:
    policy = flow_policy().eval()
    asked = request(2)
    only = ChunkRequest({"observation.state": asked.observation["observation.state"]})
    noise = torch.zeros(2, 6, 3)
    assert torch.equal(policy.chunk(asked, noise=noise), policy.chunk(only, noise=noise))
    assert set(policy.spec.features) == {"observation.state"}
    assert not policy.spec.reads_task


def test_images_are_the_same_before_and_after_shrinking() -> None:
    policy = flow_policy(inputs=("observation.images.front",), image_size=(12, 20)).eval()
    small = flow_policy(inputs=("observation.images.front",), image_size=(8, 10)).eval()
    flat = torch.full((1, 1, 12, 20, 3), 77, dtype=torch.uint8)
    for model, shrunk in ((policy, flat), (small, torch.full((1, 1, 8, 10, 3), 77, dtype=torch.uint8))):
        codes = [model.encode({"observation.images.front": image})["projected"] for image in (flat, shrunk)]
        torch.testing.assert_close(*codes)
    with pytest.raises(ValueError, match=r"uint8 \(1, 1, 9, 9, 3\)"):
        policy.encode({"observation.images.front": torch.zeros(1, 1, 9, 9, 3, dtype=torch.uint8)})


def test_wrong_width_and_nan_name_feature_and_dimension() -> None:
    policy = flow_policy()
    with pytest.raises(ValueError, match=r"'observation.state' has shape \(1, 1, 4\)"):
        policy.encode({"observation.state": torch.zeros(1, 1, 4)})
    broken = torch.zeros(1, 1, 5)
    broken[0, 0, 2] = torch.nan
    with pytest.raises(ValueError, match=r"'observation\.state' is not finite in dimension c"):
        policy.encode({"observation.state": broken})


def test_nan_never_leaves() -> None:
    policy = flow_policy().eval()
    with torch.no_grad():
        policy.network.write.bias[7] = torch.nan
    with pytest.raises(ValueError, match=r"'action' is not finite in dimension arm\.x, arm\.y"):
        policy.chunk(request(1), noise=torch.zeros(1, 6, 3))


def test_unfitted_policy_says_so() -> None:
    policy = FlowPolicy(FlowConfig(inputs=("observation.state",)), FEATURES, SPEC)
    with pytest.raises(ValueError, match="no normalisation statistics"):
        policy.encode(request(1).observation)
    with pytest.raises(ValueError, match="inputs is empty"):
        FlowPolicy(FlowConfig(), FEATURES, SPEC)


def test_sigma_may_differ_along_the_chunk(policy, chunk_request, noise) -> None:
    context = policy.encode(chunk_request.observation)
    level = torch.full((4,), 0.4, device=noise.device)
    same = policy.velocity(noise, level[:, None].expand(4, 6), context)
    torch.testing.assert_close(same, policy.velocity(noise, level, context))
    ramp = torch.linspace(0, 0.8, 6, device=noise.device).expand(4, 6)
    assert not torch.allclose(policy.velocity(noise, ramp, context), same)


def test_predicted_clean_chunk_is_what_the_last_step_arrives_at() -> None:
    policy = flow_policy(prediction="clean", steps=10).eval()
    context = policy.encode(request(2).observation)
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        policy.network.write.weight.zero_()
        policy.network.write.bias.fill_(0.25)
        level = torch.tensor([0.5, 0.02])
        velocity = policy.velocity(x, level, context)
    torch.testing.assert_close(velocity[0], (x[0] - 0.25) / 0.5)
    torch.testing.assert_close(velocity[1], (x[1] - 0.25) / 0.1)
    chunk = policy.chunk(request(2), noise=x)
    expected = policy.decode(torch.full_like(x, 0.25), context)
    torch.testing.assert_close(chunk, expected.detach())


def test_velocity_is_differentiable_row_by_row(policy, chunk_request, noise) -> None:
    context = policy.encode(chunk_request.observation)
    x = noise.clone().requires_grad_()
    velocity = policy.velocity(x, torch.full((4,), 0.5, device=x.device), context)
    (gradient,) = torch.autograd.grad(velocity[1].sum(), x)
    assert gradient[1].abs().max() > 0
    assert torch.equal(gradient[[0, 2, 3]], torch.zeros_like(gradient[[0, 2, 3]]))


@pytest.mark.parametrize("relative", [None, "observation.position"])
def test_actions_survive_decode_and_encode(relative) -> None:
    inputs = ("observation.state", "observation.position")
    policy = flow_policy(inputs=inputs, relative_to=relative)
    asked = request(3)
    context = policy.encode(asked.observation)
    action = 0.01 * torch.randn(3, 6, 3)
    torch.testing.assert_close(policy.decode(policy.encode_action(action, context), context), action)
    if relative:
        origin = asked.observation[relative][:, -1:]
        shifted = policy.encode_action(action + origin, context)
        plain = flow_policy(inputs=inputs).encode_action(action, context)
        torch.testing.assert_close(shifted, plain, atol=1e-3, rtol=1e-4)


def test_flow_loss_of_hand_worked_numbers() -> None:
    policy = flow_policy().eval()
    asked = request(2)
    action = 0.005 * torch.ones(2, 6, 3)
    noise = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    sigma = torch.tensor([0.2, 0.9])
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    batch = ActionBatch(asked.observation, action, mask)
    loss = policy.flow_loss(batch, noise=noise, sigma=sigma, weights=torch.tensor([1.0, 3.0]))
    context = policy.encode(asked.observation)
    clean = policy.encode_action(action, context)
    for row, level, last, weight in ((0, 0.2, 6, 1.0), (1, 0.9, 4, 3.0)):
        x = (1 - level) * clean[row] + level * noise[row]
        own = context.rows([row])
        velocity = policy.velocity(x[None], torch.tensor([level]), own)[0]
        error = (velocity - (noise[row] - clean[row]))[:last].square().mean()
        torch.testing.assert_close(loss[row], weight * error)


def test_masked_entries_and_their_values_do_not_matter() -> None:
    policy = flow_policy().eval()
    asked = request(1)
    mask = torch.tensor([[True] * 3 + [False] * 3])
    losses = []
    for rest in (0.0, 100.0):
        action = torch.full((1, 6, 3), 0.01)
        action[:, 3:] = rest
        # The masked part still enters the network as context, so keep it out of x.
        noise, sigma = torch.ones(1, 6, 3), torch.ones(1)
        losses.append(
            policy.flow_loss(ActionBatch(asked.observation, action, mask), noise=noise, sigma=sigma)
        )
    torch.testing.assert_close(*losses)


def test_conditions_change_the_chunk_and_unknown_ones_are_refused() -> None:
    policy = flow_policy(conditions=("positive", "negative"), condition_dropout=0.3).eval()
    asked, noise = request(2), torch.zeros(2, 6, 3)
    chunks = [policy.chunk(asked, noise=noise, condition=c) for c in (None, "positive", "negative")]
    assert not torch.equal(chunks[0], chunks[1])
    assert not torch.equal(chunks[1], chunks[2])
    mixed = policy.chunk(asked, noise=noise, condition=["negative", None])
    torch.testing.assert_close(mixed[0], chunks[2][0])
    torch.testing.assert_close(mixed[1], chunks[0][1])
    assert policy.spec.supports.unconditional
    with pytest.raises(ValueError, match=r"condition 'good' for 2 rows.*'positive', 'negative'"):
        policy.chunk(asked, noise=noise, condition="good")
    with pytest.raises(ValueError, match="no conditions"):
        flow_policy().chunk(asked, noise=noise, condition="positive")


def test_condition_is_dropped_in_training_only() -> None:
    policy = flow_policy(conditions=("positive",), condition_dropout=0.5)
    asked = request(64)
    batch = ActionBatch(asked.observation, torch.zeros(64, 6, 3), condition="positive")
    given = {"noise": torch.zeros(64, 6, 3), "sigma": torch.full((64,), 0.5)}
    kept = policy.eval().flow_loss(batch, **given)
    none = policy.flow_loss(ActionBatch(asked.observation, batch.action), **given)
    torch.manual_seed(0)
    dropped = policy.train().flow_loss(batch, **given)
    is_none = torch.isclose(dropped, none)
    assert 16 < int(is_none.sum()) < 48
    torch.testing.assert_close(dropped[~is_none], kept[~is_none])


def test_beta_noise_levels_have_the_stated_law() -> None:
    policy = flow_policy(sigma_sampling="beta")
    sigma = policy.draw_sigma(20000, torch.Generator().manual_seed(0))
    # Beta(1.5, 1): mean 0.6, and the probability of sigma < 0.25 is 0.25^1.5 = 0.125.
    assert float(sigma.mean()) == pytest.approx(0.6, abs=0.01)
    assert float((sigma < 0.25).float().mean()) == pytest.approx(0.125, abs=0.01)


def test_dimensions_that_hardly_moved_are_named() -> None:
    import dataclasses

    from data.statistics import NormalizationError

    stats = statistics()
    state = stats["observation.state"]
    still = dataclasses.replace(
        state,
        std=state.std * np.array([1, 1, 1e-9, 1, 1]),
        min=np.where(np.arange(5) == 2, 1.0, state.min),
        max=np.where(np.arange(5) == 2, 1.0, state.max),
    )
    policy = flow_policy()
    with pytest.raises(NormalizationError, match=r"'observation.state'.*\bc\b"):
        policy.fit(stats | {"observation.state": still}, constant="refuse")
    policy.fit(stats | {"observation.state": still})
    value = torch.full((1, 1, 5), 1.0)
    value[..., 2] = 1e6
    assert bool(policy.encode({"observation.state": value})["projected"].isfinite().all())
    with pytest.raises(NormalizationError, match=r"no statistics for 'observation\.state'"):
        policy.fit({"action": stats["action"]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon is 0"),
        ({"condition_dropout": 0.5}, "without conditions"),
        ({"relative_to": "observation.position"}, "relative_to"),
        ({"image_size": (4, 4)}, "image_size"),
        ({"inputs": ("task", "task")}, "each feature key once"),
    ],
)
def test_configuration_is_checked_when_built(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        FlowConfig(**{"inputs": ("observation.state",), **changes})
