"""Our chunks in robot units against LeRobot's whole chain: pre-processor, policy, post-processor."""

from __future__ import annotations

import json

import pytest
import torch
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.policies.factory import make_pre_post_processors

from data.formats.registry import load as load_format
from data.formats.registry import open_source
from policies.checkpoint import CheckpointError
from policies.conformance import check_policy, random_request
from policies.loading import load
from policies.request import ChunkRequest
from tests.policies.lerobot.recipes import (
    ACTION,
    ENVIRONMENT,
    RATE,
    STATE,
    cameras,
    diffusion_config,
    feature,
    save,
)
from tests.robot_rl.train.test_cloning import SPEC, record

BOTH = {STATE: feature("STATE", 4), ENVIRONMENT: feature("ENV", 6), **cameras("front")}


def edit(folder, name, change):
    path = folder / name
    pipeline = json.loads(path.read_text())
    change(pipeline["steps"])
    path.write_text(json.dumps(pipeline))


def make_relative(folder, **config):
    """Let the actions be offsets from the state, as LeRobot's pi0 can have them."""
    said = {"enabled": True, "exclude_joints": [], "action_names": None, **config}
    relative = {"registry_name": "relative_actions_processor", "config": said}
    absolute = {"registry_name": "absolute_actions_processor", "config": {"enabled": True}}
    edit(folder, "policy_preprocessor.json", lambda steps: steps.insert(-1, relative))
    edit(folder, "policy_postprocessor.json", lambda steps: steps.insert(1, absolute))
    return folder


def lerobots_chunk(folder, observation, noise):
    """What a user of LeRobot gets: (B, n, A) in robot units."""
    policy = DiffusionPolicy.from_pretrained(folder)
    before, after = make_pre_post_processors(policy.config, str(folder))
    batch = {
        key: value.movedim(-1, -3).float() / 255 if value.dtype == torch.uint8 else value
        for key, value in observation.items()
    }
    newest = dict(batch)
    actions = policy.predict_action_chunk(
        {k: v for k, v in before(batch).items() if k.startswith("obs")}, noise=noise
    )
    before({key: value[:, -1] for key, value in newest.items()})  # relative actions start at the newest state
    return after(actions)


def compared(folder, **options):
    policy = load(folder, rate_hz=RATE, **options)
    request = random_request(policy, torch.Generator().manual_seed(0))
    noise = torch.randn(3, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(1))
    return policy, request, noise


@pytest.mark.parametrize("mode", ["MIN_MAX", "MEAN_STD", "QUANTILES", "QUANTILE10", "IDENTITY"])
def test_robot_units_are_lerobots_to_the_bit_in_every_mode_of_normalisation(tmp_path, mode):
    mapping = dict.fromkeys(("STATE", "ENV", "VISUAL", "ACTION"), mode)
    from lerobot.configs import NormalizationMode

    config = diffusion_config(
        normalization_mapping={k: NormalizationMode(v) for k, v in mapping.items()}, input_features=BOTH
    )
    folder = save(config, tmp_path)
    policy, request, noise = compared(folder)
    theirs = lerobots_chunk(folder, request.observation, noise)
    assert torch.equal(policy.chunk(request, noise=noise)[:, 1:5], theirs)
    check_policy(policy)


@pytest.mark.parametrize("config", [{}, {"exclude_joints": ["grip"], "action_names": ["x", "grip"]}])
def test_relative_actions_start_at_each_rows_newest_state(tmp_path, config):
    folder = make_relative(save(diffusion_config(), tmp_path), **config)
    policy, request, noise = compared(folder)
    theirs = lerobots_chunk(folder, request.observation, noise)
    torch.testing.assert_close(policy.chunk(request, noise=noise)[:, 1:5], theirs)
    check_policy(policy)
    swapped = ChunkRequest({k: v.flip(0) for k, v in request.observation.items()})
    again = policy.chunk(swapped, noise=noise.flip(0)).flip(0)
    torch.testing.assert_close(again, policy.chunk(request, noise=noise))


def test_what_the_checkpoint_renames_is_read_under_the_robots_name(tmp_path):
    folder = save(diffusion_config(), tmp_path)
    plain, request, noise = compared(folder)

    def rename(steps):
        steps[0]["config"]["rename_map"] = {"observation.joints": STATE}

    edit(folder, "policy_preprocessor.json", rename)
    policy = load(folder, rate_hz=RATE)
    assert set(policy.spec.features) == {"observation.joints", ENVIRONMENT}
    seen = {("observation.joints" if k == STATE else k): v for k, v in request.observation.items()}
    chunk = policy.chunk(ChunkRequest(seen), noise=noise)
    assert torch.equal(chunk, plain.chunk(request, noise=noise))


def test_unequal_features_cannot_share_a_robot_key(tmp_path):
    folder = save(diffusion_config(), tmp_path)
    with pytest.raises(CheckpointError, match=r"unequal shapes to 'observation\.state'"):
        load(folder, rate_hz=RATE, keys={ENVIRONMENT: STATE})
    with pytest.raises(CheckpointError, match=r"no \['observation.joints'\], which keys map"):
        load(folder, rate_hz=RATE, keys={"observation.joints": STATE})


def test_steps_that_cannot_be_undone_are_refused(tmp_path):
    folder = save(diffusion_config(), tmp_path)
    other = {"class": "lerobot.processor.pipeline.IdentityProcessorStep", "config": {}}
    edit(folder, "policy_postprocessor.json", lambda steps: steps.append(other))
    with pytest.raises(CheckpointError, match="IdentityProcessorStep, which cannot be undone"):
        load(folder, rate_hz=RATE)
    edit(folder, "policy_postprocessor.json", lambda steps: (steps.pop(), steps.pop(0)))
    with pytest.raises(CheckpointError, match="0 steps of kind UnnormalizerProcessorStep"):
        load(folder, rate_hz=RATE)


def test_the_data_it_was_trained_on_are_compared_and_give_the_rate(tmp_path):
    record(tmp_path / "store", 2)
    changes = {"input_features": {STATE: feature("STATE", 4), ENVIRONMENT: feature("ENV", 2)}}
    folder = save(diffusion_config(**changes), tmp_path / "policy")
    wrench = {ENVIRONMENT: "observation.wrench"}
    assert load(folder, data=tmp_path / "store", keys=wrench).spec.rate_hz == SPEC.rate_hz
    with pytest.raises(CheckpointError, match=f"'{ENVIRONMENT}' is in the checkpoint but not in the data"):
        load(folder, data=tmp_path / "store")
    wider = {"input_features": {STATE: feature("STATE", 5), ENVIRONMENT: feature("ENV", 2)}}
    other = save(diffusion_config(**wider), tmp_path / "wider")
    with pytest.raises(CheckpointError, match=rf"'{STATE}' has shape \(5,\) in the checkpoint but \(4,\)"):
        load(other, data=tmp_path / "store", keys=wrench)
    more = diffusion_config(**changes, output_features={ACTION: feature("ACTION", 3)})
    with pytest.raises(CheckpointError, match=r"'action' has shape \(3,\) in the checkpoint but \(2,\)"):
        load(save(more, tmp_path / "more"), data=tmp_path / "store", keys=wrench)


def test_a_lerobot_dataset_gives_its_rate_and_action_width(tmp_path):
    pytest.importorskip("datasets")
    record(tmp_path / "store", 2)
    source = open_source(tmp_path / "store")
    write = load_format("lerobot").write
    write(source.episodes, source.features, None, tmp_path / "dataset")
    changes = {"input_features": {STATE: feature("STATE", 4), ENVIRONMENT: feature("ENV", 2)}}
    folder = save(diffusion_config(**changes), tmp_path / "policy")
    wrench = {ENVIRONMENT: "observation.wrench"}
    assert load(folder, data=tmp_path / "dataset", keys=wrench).spec.rate_hz == 20.0
    more = diffusion_config(**changes, output_features={ACTION: feature("ACTION", 3)})
    with pytest.raises(CheckpointError, match=r"'action' has shape \(3,\)"):
        load(save(more, tmp_path / "more"), data=tmp_path / "dataset", keys=wrench)
