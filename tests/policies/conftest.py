"""Fixtures shared by the policy tests: a small fitted policy on every device that is present."""

from __future__ import annotations

import pytest
import torch

from policies.flow import FlowPolicy
from policies.request import ChunkRequest
from tests.policies.tools import A, flow_policy, request


@pytest.fixture
def policy(device: str) -> FlowPolicy:
    return flow_policy().to(device).eval()


@pytest.fixture
def chunk_request() -> ChunkRequest:
    return request(4)


@pytest.fixture
def noise(policy: FlowPolicy) -> torch.Tensor:
    drawn = torch.randn(4, policy.spec.horizon, A, generator=torch.Generator().manual_seed(3))
    return drawn.to(policy.device)
