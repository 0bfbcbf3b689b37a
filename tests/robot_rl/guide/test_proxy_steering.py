"""Proxy steering: what it adds, when it adds nothing, and that it is bounded."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from policies.hooks import DenoiseHook
from policies.sampler import sample_chunk
from robot_rl.guide.proxy import Proxy
from robot_rl.guide.proxy_steering import ProxySteering
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from tests.policies.tools import FEATURES, SMALL, A, ConstantVelocity, flow_policy, request, statistics

ROWS = 3
POLICY = flow_policy()


def proxy(seed=1, horizon=SMALL.horizon):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Proxy(replace(SMALL, horizon=horizon), FEATURES, A)
    made.encoder.fit(statistics())
    return made


class SameAs(Proxy):
    """A reference that knows the base exactly."""

    def encode(self, observation):
        return POLICY.encode(observation)["projected"]

    def velocity(self, x, sigma, code):
        return POLICY.network(x, sigma, code)


def exact_reference():
    return SameAs(SMALL, FEATURES, A)


def noise(policy=POLICY, seed=3):
    return torch.randn(ROWS, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(seed))


def steered(hook, policy=POLICY):
    return sample_chunk(policy, request(ROWS), noise(policy), [hook])


def test_without_gamma_the_base_is_left_to_the_bit():
    hook = ProxySteering(proxy(1), proxy(2), gamma=0.0)
    assert torch.equal(steered(hook), sample_chunk(POLICY, request(ROWS), noise()))
    policy = ConstantVelocity()
    hook = ProxySteering(proxy(1, 4), proxy(2, 4), gamma=0.0)
    assert torch.equal(steered(hook, policy), sample_chunk(policy, request(ROWS), noise(policy)))


def test_two_equal_proxies_add_exactly_nothing():
    hook = ProxySteering(proxy(1), proxy(1), gamma=0.7)
    assert torch.equal(steered(hook), sample_chunk(POLICY, request(ROWS), noise()))


def test_with_an_exact_reference_and_gamma_one_the_task_proxy_alone_acts():
    task = proxy(2)
    hook = ProxySteering(exact_reference(), task, gamma=1.0, cap=100.0)
    alone = ProxySteering(exact_reference(), task, form="specialist")
    torch.testing.assert_close(steered(hook), steered(alone), rtol=0, atol=1e-6)
    code = task.encode(request(ROWS).observation)
    x = noise()
    for now, then in zip((1.0, 0.75, 0.5, 0.25), (0.75, 0.5, 0.25, 0.0), strict=True):
        x = x + (then - now) * task.velocity(x, torch.full((ROWS,), now), code)
    expected = POLICY.decode(x, POLICY.encode(request(ROWS).observation))
    torch.testing.assert_close(steered(alone), expected, rtol=0, atol=1e-6)


class Catch(DenoiseHook):
    order = 50

    def __init__(self):
        self.velocities = []

    def step(self, state):
        self.velocities.append(state.velocity)
        return state.x, state.velocity


def test_the_addition_is_gamma_times_the_difference_until_it_reaches_the_cap():
    reference, task = proxy(1), proxy(2)
    observation, context = request(ROWS).observation, POLICY.encode(request(ROWS).observation)
    one = torch.ones(ROWS)
    base = POLICY.velocity(noise(), one, context)
    difference = 0.4 * (
        task.velocity(noise(), one, task.encode(observation))
        - reference.velocity(noise(), one, reference.encode(observation))
    )
    for cap in (100.0, 0.01):
        catch, hook = Catch(), ProxySteering(reference, task, gamma=0.4, cap=cap)
        sample_chunk(POLICY, request(ROWS), noise(), [hook, catch])
        added = catch.velocities[0] - base
        length, most = added.flatten(1).norm(dim=1), cap * base.flatten(1).norm(dim=1)
        assert (length <= most * (1 + 1e-3)).all()
        if cap == 100.0:
            torch.testing.assert_close(added, difference, rtol=1e-4, atol=1e-6)
        else:
            torch.testing.assert_close(length, most, rtol=1e-3, atol=1e-6)
    (share,) = hook.info().values()
    assert share.shape == (ROWS,)
    assert (share > 0.01).all()


def test_rows_do_not_depend_on_their_neighbours():
    hook = ProxySteering(proxy(1), proxy(2))
    together = steered(hook)
    alone = sample_chunk(POLICY, request(ROWS).rows([1]), noise()[1:2], [hook])
    torch.testing.assert_close(alone[0], together[1], rtol=0, atol=1e-6)


def test_it_is_saved_with_both_proxies(tmp_path):
    hook = ProxySteering(proxy(1), proxy(2), gamma=0.5, cap=2.0)
    save_refiner(tmp_path, Refiner(hooks=(hook,), base_hash=POLICY.hash()))
    (loaded,) = load_refiner(tmp_path).hooks
    assert torch.equal(steered(loaded), steered(hook))
    assert (loaded.gamma, loaded.cap, loaded.keys) == (0.5, 2.0, ("observation.state",))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="gamma is 3"):
        ProxySteering(proxy(), proxy(), gamma=3)
    with pytest.raises(ValueError, match="cap is 0"):
        ProxySteering(proxy(), proxy(), cap=0)
    with pytest.raises(ValueError, match="form is 'sum'; allowed: difference, no_reference, specialist"):
        ProxySteering(proxy(), proxy(), form="sum")
    with pytest.raises(ValueError, match="differ in inputs or size"):
        ProxySteering(proxy(), proxy(horizon=4))
    with pytest.raises(ValueError, match=r"of chunks \(4, 3\), the policy's are \(6, 3\)"):
        steered(ProxySteering(proxy(horizon=4), proxy(horizon=4)))
    broken = copy.deepcopy(ProxySteering(proxy(), proxy()).tensors())
    broken.pop("task.network.write.bias")
    with pytest.raises(ValueError, match="the task proxy does not fit its configuration"):
        ProxySteering.from_payload(ProxySteering(proxy(), proxy()).payload(), broken)
