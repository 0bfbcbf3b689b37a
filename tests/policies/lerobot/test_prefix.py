"""What SmolVLA, pi0 and pi0.5 have in common beside their steps: a prefix that is encoded once."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from policies.checkpoint import CheckpointError
from policies.parity import check_parity
from policies.request import ChunkRequest
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.tiny_vla import CACHED, make_vla, noise, observation, open_vla, save_vla


@pytest.mark.parametrize("kind", CACHED)
def test_the_prefix_runs_once_and_every_step_only_the_expert(tmp_path: Path, kind: str) -> None:
    policy = make_vla(tmp_path, kind)
    network = policy.model.model
    language = getattr(network, "vlm_with_expert", None) or network.paligemma_with_expert
    with (
        mock.patch.object(network, "embed_prefix", wraps=network.embed_prefix) as embed,
        mock.patch.object(language, "forward", wraps=language.forward) as forward,
    ):
        policy.chunk(ChunkRequest(observation()), noise(policy))
    assert embed.call_count == 1
    prefixes = [call.kwargs["inputs_embeds"][0] is not None for call in forward.call_args_list]
    assert prefixes == [True] + [False] * tiny.STEPS


@pytest.mark.parametrize("kind", CACHED)
def test_a_compiled_policy_is_refused_and_may_be_loaded_uncompiled(tmp_path: Path, kind: str) -> None:
    folder = save_vla(tmp_path / kind, kind)
    tiny.change_config(folder, compile_model=True)
    with pytest.raises(CheckpointError, match="compile_model=False"):
        open_vla(folder)
    assert check_parity(open_vla(folder, compile_model=False)).difference == 0.0
