"""What only GR00T N1.7 does."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
import torch
from lerobot.policies.factory import make_pre_post_processors
from torch import Tensor

from policies.checkpoint import CheckpointError
from policies.hooks import DenoiseHook, DenoiseState
from policies.lerobot.base import LeRobotChunkPolicy
from policies.lerobot.groot import GrootPolicy, bucket
from policies.parity import check_parity
from policies.request import ChunkRequest, Observation
from policies.sampler import sample_chunk
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.tiny_groot import BACKBONE, groups
from tests.policies.lerobot.tiny_vla import make_vla, noise, observation, open_vla, save_vla

_VALID = 6
_TEXTS = ("left", "put it into the bin on the right")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LeRobotChunkPolicy:
    return make_vla(tmp_path_factory.mktemp("groot"), "groot")


@pytest.fixture(scope="module")
def grouped_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vla(tmp_path_factory.mktemp("grouped") / "groot", "groot", beside=groups(_VALID))


@pytest.fixture(scope="module")
def grouped(grouped_folder: Path) -> LeRobotChunkPolicy:
    return open_vla(grouped_folder)


@pytest.mark.parametrize(
    "options", [{"use_bf16": True}, {"num_inference_timesteps": 7}, {"n_action_steps": 5}]
)
def test_parity_holds_whatever_is_set(tmp_path: Path, options: dict[str, object]) -> None:
    policy = make_vla(tmp_path, "groot", **options)
    parity = check_parity(policy)
    assert parity.within(0.0)
    assert parity.positions == policy.spec.executed_steps == options.get("n_action_steps", tiny.HORIZON)


def test_parity_holds_for_a_base_with_groups_of_actions(grouped: LeRobotChunkPolicy) -> None:
    assert check_parity(grouped).within(0.0)


@pytest.mark.parametrize("steps", [*range(1, 41), 64, 100, 250])
def test_levels_of_noise_fall_into_the_buckets_that_lerobot_takes(
    policy: LeRobotChunkPolicy, steps: int
) -> None:
    theirs = [int(index / float(steps) * 1000) for index in range(steps)]
    assert bucket(policy.sigmas(steps)[:-1], 1000).tolist() == theirs


def test_the_last_bucket_holds_a_clean_chunk() -> None:
    assert bucket(torch.tensor([1.0, 0.0]), 1000).tolist() == [0, 999]


def test_the_backbone_runs_once_for_each_length_of_text(policy: LeRobotChunkPolicy) -> None:
    backbone = policy.model._groot_model.backbone
    for texts, count in ((("left", "left"), 1), (_TEXTS, 2)):
        with mock.patch.object(backbone, "forward", wraps=backbone.forward) as forward:
            policy.chunk(ChunkRequest(observation(tasks=texts)), noise(policy))
        assert forward.call_count == count


def test_lerobot_lets_a_longer_text_in_the_batch_change_a_row(policy: LeRobotChunkPolicy) -> None:
    start = noise(policy)
    together = policy.original(observation(tasks=_TEXTS), start)
    alone = policy.original(observation(tasks=(_TEXTS[0],) * 2), start)
    assert float((together[0] - alone[0]).abs().max()) > 1e-4  # why rows are encoded by length here
    assert torch.equal(
        policy.chunk(ChunkRequest(observation(tasks=(_TEXTS[0],) * 2)), start),
        policy.decode(alone, policy.encode(observation(tasks=(_TEXTS[0],) * 2))),
    )


def test_actions_are_decoded_as_lerobot_does(policy: LeRobotChunkPolicy, tmp_path: Path) -> None:
    given, start = observation(), noise(policy)
    folder = save_vla(tmp_path / "groot", "groot")
    theirs = _by_lerobot(policy, folder, given, start)
    assert torch.equal(policy.chunk(ChunkRequest(given), start), theirs)


def test_groups_relative_to_the_state_are_decoded_as_lerobot_does(
    grouped: LeRobotChunkPolicy, grouped_folder: Path
) -> None:
    assert isinstance(grouped, GrootPolicy)
    assert grouped.valid_positions == _VALID
    start = noise(grouped)
    observations = [observation(seed=seed) for seed in (0, 5)]
    chunks = [grouped.chunk(ChunkRequest(given), start) for given in observations]
    contexts = [grouped.encode(given) for given in observations]
    for given, chunk, context in zip(observations, chunks, contexts, strict=True):
        theirs = _by_lerobot(grouped, grouped_folder, given, start)
        assert torch.allclose(chunk[:, :_VALID], theirs, atol=1e-6)
        assert torch.equal(chunk[:, _VALID:], chunk[:, _VALID - 1 : _VALID].expand(-1, 2, -1))
        again = grouped.encode_action(chunk, context)
        assert torch.allclose(grouped.decode(again, context), chunk, atol=1e-5)
        assert not again[:, _VALID:].any()
        assert not again[..., tiny.ACTION_SIZE :].any()


def test_gradients_of_decoded_actions_end_where_lerobot_cuts_them_off(policy: LeRobotChunkPolicy) -> None:
    x = torch.tensor([0.5, -2.0]).repeat(2, tiny.HORIZON, tiny.PADDED // 2).requires_grad_()
    policy.decode(x, policy.encode(observation())).sum().backward()
    assert x.grad is not None
    assert bool((x.grad[..., 0] > 0).all())
    assert not x.grad[..., 1].any()
    assert not x.grad[..., tiny.ACTION_SIZE :].any()


def test_a_hook_reaches_nothing_through_positions_that_mean_nothing(grouped: LeRobotChunkPolicy) -> None:
    class Push(DenoiseHook):
        def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
            pushed = state.x.clone()
            pushed[:, _VALID:] += 10.0
            return pushed, state.velocity

    request, start = ChunkRequest(observation()), noise(grouped)
    assert torch.equal(sample_chunk(grouped, request, start, [Push()]), grouped.chunk(request, start))


def test_a_pose_relative_to_the_hand_is_refused(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "groot", "groot", beside=groups(_VALID, kind="eef"))
    with pytest.raises(CheckpointError, match="relative to the hand"):
        open_vla(folder)


def test_a_gripper_that_becomes_a_sign_is_refused(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "groot", "groot")
    tiny.change_config(folder, action_decode_transform="libero")
    with pytest.raises(CheckpointError, match="libero"):
        open_vla(folder)


def test_actions_without_normalisation_are_refused(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "groot", "groot")
    file = folder / "policy_postprocessor.json"
    pipeline = json.loads(file.read_text(encoding="utf-8"))
    pipeline["steps"][0]["config"]["normalize_min_max"] = False
    file.write_text(json.dumps(pipeline), encoding="utf-8")
    with pytest.raises(CheckpointError, match="not be normalised"):
        open_vla(folder)


def test_what_is_missing_from_the_hub_is_named(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "groot", "groot")
    with pytest.raises(CheckpointError, match=BACKBONE):
        open_vla(folder, local={})
    tiny.change_config(folder, base_model_path="nvidia/GR00T-N1.7-3B")
    with pytest.raises(CheckpointError, match=r"nvidia/GR00T-N1\.7-3B"):
        open_vla(folder)


def test_a_base_that_attends_to_padding_is_refused(tmp_path: Path) -> None:
    folder = save_vla(tmp_path / "groot", "groot")
    tiny.change_config(tmp_path / "groot" / "base", use_alternate_vl_dit=False)
    with pytest.raises(CheckpointError, match="use_alternate_vl_dit"):
        open_vla(folder)


def _by_lerobot(policy: LeRobotChunkPolicy, folder: Path, given: Observation, start: Tensor) -> Tensor:
    """The chunk in robot units through LeRobot's own processors."""
    before, after = make_pre_post_processors(
        policy.model.config,
        str(folder),
        preprocessor_overrides={"groot_n1_7_vlm_encode_v1": {"model_name": str(folder.parent / "backbone")}},
    )
    image, state = given[tiny.CAMERA], given["observation.state"]
    assert isinstance(image, Tensor)
    assert isinstance(state, Tensor)
    shown = image[:, -1].movedim(-1, -3).float() / 255
    before({"observation.state": state[:, -1], tiny.CAMERA: shown, "task": list(given["task"])})
    theirs: Tensor = after(policy.original(given, start))
    return theirs
