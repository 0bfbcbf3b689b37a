from __future__ import annotations

import pytest
import torch

from policies.request import ActionBatch
from tests.policies.tools import flow_policy, request


def batch() -> ActionBatch:
    return ActionBatch(request(4).observation, 0.01 * torch.ones(4, 6, 3))


@pytest.mark.parametrize("kind", ["copy", "lora"])
def test_student_starts_equal_and_training_it_leaves_the_base(kind, policy, chunk_request, noise) -> None:
    before, plain = policy.hash(), policy.chunk(chunk_request, noise=noise)
    student = policy.student(kind, rank=2)
    assert torch.equal(student.chunk(chunk_request, noise=noise), plain)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        student.flow_loss(batch()).mean().backward()
        optimizer.step()
    assert not torch.equal(student.chunk(chunk_request, noise=noise), plain)
    assert torch.equal(policy.chunk(chunk_request, noise=noise), plain)
    assert policy.hash() == before != student.hash()
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_lora_student_owns_adapters_only_and_restores_the_base() -> None:
    policy = flow_policy()
    frozen = [name for name, p in policy.named_parameters() if "embedding" in name or name.endswith("bias")]
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(name not in frozen)
    names = list(policy.state_dict())
    student = policy.student("lora", rank=2)
    assert all(name.startswith("adapters.") for name in student.state_dict())
    with student.adapted():
        assert not any(parameter.requires_grad for parameter in policy.parameters())
    assert [n for n, p in policy.named_parameters() if not p.requires_grad] == frozen
    assert list(policy.state_dict()) == names
    assert not any(module._forward_hooks for module in policy.modules())


def test_base_and_student_can_be_used_in_one_update(policy, chunk_request, noise) -> None:
    student = policy.student("lora", rank=2)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.normal_(generator=torch.Generator(noise.device).manual_seed(0))
    level = torch.full((4,), 0.5, device=noise.device)
    with torch.no_grad():
        target = policy.velocity(noise, level, policy.encode(chunk_request.observation))
    guess = student.velocity(noise, level, student.encode(chunk_request.observation))
    again = policy.velocity(noise, level, policy.encode(chunk_request.observation))
    assert torch.equal(target, again.detach())
    (guess - target).square().mean().backward()
    assert all(parameter.grad is not None for parameter in student.parameters() if parameter.numel())


def test_student_of_a_student_starts_equal_to_it(policy, chunk_request, noise) -> None:
    student = policy.student("lora", rank=2)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.1)
    other = student.student("lora", rank=2)
    assert torch.equal(other.chunk(chunk_request, noise=noise), student.chunk(chunk_request, noise=noise))
    assert other.hash() == student.hash()


def test_unknown_kinds_and_ranks_are_refused() -> None:
    policy = flow_policy()
    with pytest.raises(ValueError, match="student kind is 'full'"):
        policy.student("full")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rank is 0"):
        policy.student("lora", rank=0)
    with pytest.raises(ValueError, match="keeps its rank 2"):
        policy.student("lora", rank=2).student("lora", rank=4)
