from __future__ import annotations

import pytest
import torch

from policies.conformance import ConformanceError, check_policy
from policies.flow import FlowPolicy
from policies.registry import REGISTERED, reference_of, resolve
from policies.template_policy import HoldPolicy
from tests.policies.tools import flow_policy

EXAMPLES = {
    "flow": lambda: flow_policy(
        inputs=("observation.state", "observation.tactile.left", "observation.images.front", "task"),
        observation_steps=2,
        conditions=("positive",),
        condition_dropout=0.1,
    ),
    "template": HoldPolicy,
}


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_every_registered_policy_keeps_its_promises(name, device) -> None:
    policy = EXAMPLES[name]().to(device).eval()
    assert isinstance(policy, resolve(name))
    tried = check_policy(policy)
    assert "rows are independent" in tried
    assert ("velocity is differentiable" in tried) == (name == "flow")


class Forgetful(HoldPolicy):
    """Keeps state between calls, mixes rows, and does not mind a missing sensor."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def chunk(self, request, noise=None, condition=None) -> torch.Tensor:
        self.calls += 1
        rows = len(next(iter(request.observation.values())))
        return torch.full((rows, 8, 3), float(self.calls * rows))


def test_every_broken_promise_is_listed() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_policy(Forgetful())
    message = str(caught.value)
    assert "two calls with the same observation and noise differ" in message
    assert "row 0 alone differs" in message
    assert "no error although 'observation.state' was missing" in message


class Leaky(FlowPolicy):
    """Centres the batch, which couples its rows."""

    def velocity(self, x, sigma, context):
        return super().velocity(x - x.mean(dim=0, keepdim=True), sigma, context)


def test_coupled_rows_are_found() -> None:
    policy = flow_policy()
    policy.__class__ = Leaky
    with pytest.raises(ConformanceError, match="velocity of row 0 depends on other rows"):
        check_policy(policy.eval())


def test_names_and_import_paths_resolve() -> None:
    assert resolve("flow") is FlowPolicy
    assert resolve("policies.flow:FlowPolicy") is FlowPolicy
    assert reference_of(FlowPolicy) == "flow"
    assert reference_of(Leaky).endswith(":Leaky")
    with pytest.raises(ValueError, match="did you mean 'flow'"):
        resolve("flwo")
    with pytest.raises(ValueError, match="cannot be imported"):
        resolve("policies.flow:NoSuch")
    with pytest.raises(ValueError, match="no subclass"):
        resolve("policies.flow_config:FlowConfig")
