"""What only SmolVLA does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from policies.checkpoint import CheckpointError
from policies.lerobot.smolvla import SmolVlaPolicy
from policies.parity import check_parity
from policies.request import ChunkRequest
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.tiny_vla import make_vla, noise, observation, open_vla, save_vla

if TYPE_CHECKING:
    from pathlib import Path

_JOINTS = 14


@pytest.mark.parametrize(
    "options",
    [
        {"attention_mode": "self_attn"},
        {"self_attn_every_n_layers": -1},
        {"num_expert_layers": 1},
        {"add_image_special_tokens": True},
        {"prefix_length": 64},
        {"pad_language_to": "max_length"},
        {"empty_cameras": 1},
        {"num_steps": 7},
        {"rtc_config": RTCConfig(enabled=True)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_parity_holds_for_every_shape_of_the_network(tmp_path: Path, options: dict[str, object]) -> None:
    assert check_parity(make_vla(tmp_path, "smolvla", **options)).within(0.0)


def test_without_a_cache_it_cannot_be_sampled(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "smolvla", "smolvla")
    tiny.change_config(folder, use_cache=False)
    with pytest.raises(CheckpointError, match="set it to true"):
        open_vla(folder)


def test_the_joints_of_aloha_are_converted_as_lerobot_does_and_back(tmp_path: Path) -> None:
    sizes = {**tiny.features(_JOINTS, _JOINTS), "max_state_dim": 16, "max_action_dim": 16}
    folder = save_vla(tmp_path / "smolvla", "smolvla", adapt_to_pi_aloha=True, **sizes)
    policy = open_vla(folder)
    assert isinstance(policy, SmolVlaPolicy)
    state = 0.02 + 0.01 * torch.rand(2, 1, _JOINTS)
    given = {**observation(), "observation.state": state}
    kept = state.clone()
    start = noise(policy)
    chunk = policy.chunk(ChunkRequest(given), start)
    assert torch.equal(state, kept)
    _, after = make_pre_post_processors(policy.model.config, str(folder))
    batch = {key: value.clone() for key, value in policy.prepare(given).items()}
    assert torch.equal(chunk, after(policy.model.predict_action_chunk(batch, noise=start)))
    context = policy.encode(given)
    x = policy.encode_action(chunk, context)
    assert torch.allclose(policy.decode(x, context), chunk, atol=1e-5)
    leaf = x.clone().requires_grad_()
    policy.decode(leaf, context).sum().backward()
    assert leaf.grad is not None
    assert bool((leaf.grad[..., :_JOINTS] != 0).all())
    assert not leaf.grad[..., _JOINTS:].any()
    assert check_parity(policy, ChunkRequest(given)).within(1e-5)  # converted there and back


def test_loading_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_vla(tmp_path / "smolvla", "smolvla")
    capsys.readouterr()
    open_vla(folder)
    assert capsys.readouterr().out == ""
