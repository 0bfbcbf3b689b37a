"""What only pi0 and pi0.5 do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import safetensors.torch
import torch
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from policies.checkpoint import CheckpointError
from policies.parity import check_parity
from policies.request import ChunkRequest
from tests.policies.lerobot.tiny_pi import TOKENIZER
from tests.policies.lerobot.tiny_vla import make_vla, noise, observation, open_vla, save_vla

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_KINDS = ("pi0", "pi05")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16"},
        {"num_inference_steps": 7},
        {"empty_cameras": 1},
        {"gradient_checkpointing": True},
        {"rtc_config": RTCConfig(enabled=True)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_parity_holds_whatever_is_set(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    assert check_parity(make_vla(tmp_path, kind, **options)).within(0.0)


@pytest.mark.parametrize("kind", _KINDS)
def test_weights_in_bfloat16_leave_noise_and_chunk_in_float32(tmp_path: Path, kind: str) -> None:
    policy = make_vla(tmp_path, kind, dtype="bfloat16")
    context = policy.encode(observation())
    assert {value.dtype for name, value in context.tensors.items() if "keys" in name} == {torch.bfloat16}
    x = noise(policy).requires_grad_()
    velocity = policy.velocity(x, torch.full((2,), 0.5), context)
    assert velocity.dtype == torch.float32
    velocity.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.any())


@pytest.mark.parametrize("kind", _KINDS)
def test_relative_actions_start_from_the_state_of_their_own_context(tmp_path: Path, kind: str) -> None:
    names = ["shoulder", "elbow", "gripper"]
    folder = save_vla(tmp_path / kind, kind, use_relative_actions=True, action_feature_names=names)
    policy = open_vla(folder)
    first, second = observation(seed=0), observation(seed=5)
    start = noise(policy)
    chunks = [policy.chunk(ChunkRequest(given), start) for given in (first, second)]
    contexts = [policy.encode(given) for given in (first, second)]
    before, after = make_pre_post_processors(
        policy.model.config,
        str(folder),
        preprocessor_overrides={"tokenizer_processor": {"tokenizer_name": str(folder.parent / "tokenizer")}},
    )
    for given, chunk, context in zip((first, second), chunks, contexts, strict=True):
        before({"observation.state": given["observation.state"][:, -1], "task": given["task"]})  # type: ignore[call-overload] # a tensor
        theirs = after(policy.original(given, start))
        assert torch.equal(chunk, theirs)
        assert torch.allclose(policy.decode(policy.encode_action(chunk, context), context), chunk, atol=1e-5)
    assert not torch.allclose(chunks[0][..., :2], chunks[1][..., :2], atol=1e-2)
    rows = contexts[0].rows([1, 0])
    zero = torch.zeros_like(start)
    assert torch.equal(policy.decode(zero, rows), policy.decode(zero, contexts[0])[[1, 0]])


@pytest.mark.parametrize("kind", _KINDS)
def test_weights_under_the_names_of_openpi_are_understood(tmp_path: Path, kind: str) -> None:
    folder = save_vla(tmp_path / kind, kind)
    head = "model.paligemma_with_expert.paligemma.lm_head.weight"
    embedding = "model.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors[head] = tensors.pop(embedding).clone()
        return {name.removeprefix("model."): value for name, value in tensors.items()}

    before = open_vla(folder)
    _rewrite(folder, rename)
    after = open_vla(folder)
    given, start = ChunkRequest(observation()), noise(before)
    assert torch.equal(before.chunk(given, start), after.chunk(given, start))


@pytest.mark.parametrize("kind", _KINDS)
def test_a_missing_weight_is_refused_where_lerobot_goes_on_with_a_random_one(
    tmp_path: Path, kind: str
) -> None:
    folder = save_vla(tmp_path / kind, kind)
    _rewrite(folder, lambda tensors: {k: v for k, v in tensors.items() if "action_out_proj" not in k})
    with pytest.raises(CheckpointError, match="action_out_proj"):
        open_vla(folder)


@pytest.mark.parametrize("kind", _KINDS)
def test_the_tokenizer_that_is_missing_is_named(tmp_path: Path, kind: str) -> None:
    folder = save_vla(tmp_path / kind, kind)
    with pytest.raises(CheckpointError, match=TOKENIZER):
        open_vla(folder, local={})


def test_pi05_reads_the_state_from_its_text(tmp_path: Path) -> None:
    policy = make_vla(tmp_path, "pi05")
    start = noise(policy, 1)
    given = observation(1)
    moved = {**given, "observation.state": given["observation.state"] + 0.5}  # type: ignore[operator] # a tensor
    first, second = (policy.chunk(ChunkRequest(o), start) for o in (given, moved))
    assert float((first - second).abs().max()) > 1e-4
    tiny_move = {**given, "observation.state": given["observation.state"] + 1e-7}  # type: ignore[operator] # a tensor
    assert torch.equal(policy.chunk(ChunkRequest(tiny_move), start), first)  # 256 bins


def _rewrite(folder: Path, change: object) -> None:
    file = folder / "model.safetensors"
    assert callable(change)
    safetensors.torch.save_file(change(safetensors.torch.load_file(file)), file)
