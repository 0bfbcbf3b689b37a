from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.context import TensorContext
from policies.networks import text_buckets
from policies.noise import draw_noise
from policies.policy import PolicySpec
from policies.request import ActionBatch, ChunkRequest
from tests.policies.tools import SPEC, flow_policy, request


def test_rows_of_a_request_keep_everything_together() -> None:
    asked = request(
        3,
        previous_chunk=torch.arange(54.0).reshape(3, 6, 3),
        consumed=torch.tensor([1, 2, 3]),
        delay=torch.tensor([0, 1, 2]),
        episode_ids=("a", "b", "c"),
    )
    part = asked.rows([2, 0, 2])
    assert part.rows_count == 3
    assert part.episode_ids == ("c", "a", "c")
    assert part.consumed.tolist() == [3, 1, 3]
    assert torch.equal(part.previous_chunk[1], asked.previous_chunk[0])
    assert torch.equal(part.observation["observation.state"][0], asked.observation["observation.state"][2])
    assert part.observation["task"] == ["Put the peg in", "Put the peg in", "Put the peg in"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"consumed": torch.zeros(2)}, "consumed has 2 rows"),
        ({"previous_chunk": torch.zeros(3, 6, 3)}, "without consumed"),
        ({"episode_ids": ("a",)}, "1 episode ids for 3 rows"),
    ],
)
def test_requests_are_checked_when_built(more, message) -> None:
    with pytest.raises(ValueError, match=message):
        request(3, **more)


def test_rows_of_an_observation_must_agree() -> None:
    with pytest.raises(ValueError, match="disagree"):
        ChunkRequest({"a": torch.zeros(2, 1), "task": ["x"]})
    with pytest.raises(ValueError, match=r"expected \(2, H, A\)"):
        ActionBatch({"a": torch.zeros(2, 1)}, torch.zeros(3, 6, 3))
    with pytest.raises(ValueError, match="expected bool"):
        ActionBatch({"a": torch.zeros(2, 1)}, torch.zeros(2, 6, 3), torch.ones(2, 6))


def test_context_repeats_each_row_in_place() -> None:
    context = TensorContext({"a": torch.tensor([[1.0], [2.0]]), "b": torch.tensor([3, 4])})
    assert context.repeat(3)["a"].flatten().tolist() == [1, 1, 1, 2, 2, 2]
    assert context.rows([1, 1])["b"].tolist() == [4, 4]
    assert context.rows(torch.tensor([0])).batch_size == 1
    with pytest.raises(ValueError, match="count is 0"):
        context.repeat(0)


def test_repeated_contexts_give_candidates_of_the_same_row() -> None:
    policy = flow_policy().eval()
    context = policy.encode(request(2).observation)
    x, level = torch.randn(1, 6, 3).expand(6, 6, 3), torch.full((6,), 0.5)
    velocity = policy.velocity(x, level, context.repeat(3)).reshape(2, 3, 6, 3)
    torch.testing.assert_close(velocity[:, 0], velocity[:, 2])
    assert not torch.equal(velocity[0], velocity[1])


def test_noise_of_a_row_does_not_depend_on_the_others() -> None:
    spec = flow_policy().spec
    together = draw_noise(spec, [np.random.default_rng(i) for i in range(3)])
    alone = draw_noise(spec, [np.random.default_rng(2)])
    assert torch.equal(together[2], alone[0])
    torch_noise = draw_noise(spec, [torch.Generator().manual_seed(4)])
    assert torch.equal(torch_noise[0], torch.randn(6, 3, generator=torch.Generator().manual_seed(4)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_action": 8}, "first_action 8 is outside 0 .. 7"),
        ({"executed_steps": 8, "first_action": 1}, r"executed_steps 8 must be 1 \.\. 7"),
        ({"rate_hz": 0.0}, "rate_hz"),
        ({"horizon": 0}, "at least 1"),
    ],
)
def test_specs_are_checked_when_built(changes, message) -> None:
    facts = {"observation_steps": 1, "horizon": 8, "executed_steps": 4, "first_action": 0, "rate_hz": 20.0}
    with pytest.raises(ValueError, match=message):
        PolicySpec(name="p", features={}, action_spec=SPEC, **{**facts, **changes})


def test_text_is_hashed_the_same_everywhere() -> None:
    import zlib

    expected = [zlib.crc32(token) % 1000 for token in (b"put", b"peg", b"put peg")]
    assert text_buckets("Put, PEG!", 1000) == expected
    with pytest.raises(ValueError, match="no word"):
        text_buckets("...", 1000)
