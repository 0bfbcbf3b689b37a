from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from data.store import EpisodeStore
from policies.conformance import check_policy, random_request
from policies.loading import load
from policies.parity import check_parity
from robot_rl.train.cloning import TrainConfig, train
from robot_rl.train.diffusion_settings import DiffusionSettings
from tests.robot_rl.train.test_cloning import SPEC, record

SMALL = DiffusionSettings(
    horizon=8,
    n_action_steps=4,
    down_dims=(16, 32),
    diffusion_step_embed_dim=16,
    num_train_timesteps=20,
    num_inference_steps=5,
    image_size=(32, 32),
    prediction_type="sample",
    spatial_softmax_num_keypoints=4,
)


@pytest.fixture(scope="module")
def demos(tmp_path_factory) -> Path:
    """Circles, with the state under LeRobot's two names."""
    folder = tmp_path_factory.mktemp("demos")
    record(folder / "first", 24)
    source = EpisodeStore(folder / "first")
    place = source.features["observation.state"]
    store = EpisodeStore(
        folder / "store",
        features={"observation.state": place, "observation.environment_state": place},
        action_spec=SPEC.to_json(),
    )
    for episode in source:
        state = episode.observations["observation.state"]
        seen = {"observation.state": state, "observation.environment_state": state}
        store.write(replace(episode, observations=seen))
    return store.path


def config(data: Path, out: Path, **changes) -> TrainConfig:
    values = {"policy": "diffusion", "diffusion": SMALL, "steps": 4, "batch": 16, "checkpoint_steps": 2}
    return TrainConfig(data=data, out=out, **{**values, "outcomes": ("success", "failure"), **changes})


def test_it_learns_and_both_programs_read_it(demos, tmp_path):
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    longer = config(demos, tmp_path / "run", steps=60, batch=32, learning_rate=1e-3, average=0.9)
    folder = train(longer)
    policy = load(folder)
    assert policy.spec.action_spec == SPEC
    assert (policy.spec.first_action, policy.spec.executed_steps, policy.spec.rate_hz) == (1, 4, 20.0)
    check_policy(policy)
    assert check_parity(policy).within()
    theirs = DiffusionPolicy.from_pretrained(folder / "pretrained_model")
    ours = policy.model.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.state_dict().items())
    result = json.loads((folder / "result.json").read_text())
    assert result["policy_hash"] == policy.hash()
    assert result["held_out_error"]["mean_ratio"] < 0.7, "clearly better than holding the last action"
    assert policy.hash() == load(folder / "pretrained_model").hash()


def test_resumed_it_ends_where_it_would_have(demos, tmp_path, monkeypatch):
    straight = load(train(config(demos, tmp_path / "straight"))).hash()

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        train(config(demos, tmp_path / "stopped"), stop)
    assert not (tmp_path / "stopped" / "pretrained_model").exists(), "no policy that is not trained"
    resumed = train(config(demos, tmp_path / "stopped", resume=True))
    assert load(resumed).hash() == straight


def test_it_goes_on_from_a_checkpoint_with_its_shape(demos, tmp_path):
    first = train(config(demos, tmp_path / "first"))
    other = replace(SMALL, down_dims=(8, 8, 8))
    second = train(config(demos, tmp_path / "second", start=first, diffusion=other, learning_rate=1e-9))
    one, two = load(first), load(second)
    assert two.spec == one.spec
    gap = max(float((a - b).abs().max()) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert 0 < gap < 1e-4


def test_images_are_scaled_while_read_and_by_the_network_alike(tmp_path):
    record(tmp_path / "store", 6, images=True)
    settings = replace(SMALL, inputs=("observation.state", "observation.images.top"))
    folder = train(config(tmp_path / "store", tmp_path / "run", diffusion=settings, steps=2))
    policy = load(folder)
    assert policy.spec.features["observation.images.top"].shape == (9, 11, 3)
    request = random_request(policy, torch.Generator())
    assert policy.chunk(request).shape == (3, 8, 2)
    small = torch.zeros(3, 2, 32, 32, 3, dtype=torch.uint8)
    policy.chunk(type(request)({**request.observation, "observation.images.top": small}))
    with pytest.raises(ValueError, match=r"observation.images.top"):
        policy.chunk(type(request)({**request.observation, "observation.images.top": small[:, :, 1:]}))


def test_what_lerobots_network_would_leave_out_is_refused(demos, tmp_path):
    record(tmp_path / "store", 6)
    named = replace(SMALL, inputs=("observation.state", "observation.wrench"))
    with pytest.raises(ValueError, match=r"does not read observation.wrench"):
        train(config(tmp_path / "store", tmp_path / "b", diffusion=named))


def test_a_dimension_that_stood_still_is_not_blown_up(tmp_path, demos):
    store = EpisodeStore(
        tmp_path / "store", features=EpisodeStore(demos).features, action_spec=SPEC.to_json()
    )
    for episode in EpisodeStore(demos):
        state = episode.observations["observation.state"].copy()
        state[:, 3] = 0.25
        seen = dict(episode.observations) | {"observation.state": state}
        store.write(replace(episode, observations=seen))
    policy = load(train(config(store.path, tmp_path / "run", steps=1)))
    request = random_request(policy, torch.Generator())
    moved = torch.zeros(3, 2, 4) + 0.26
    batch = policy.prepare({**request.observation, "observation.state": moved})
    assert float(batch["observation.state"].abs().max()) < 1e3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"horizon": 10}, "multiple of 4"),
        ({"down_dims": (12, 16)}, "multiples of 8"),
        ({"n_action_steps": 8}, "allowed is 1 to 7"),
        ({"num_inference_steps": 21}, "num_inference_steps is 21"),
    ],
)
def test_impossible_settings_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        replace(SMALL, **wrong)


def test_another_vector_or_the_state_serves_as_environment_state(tmp_path):
    record(tmp_path / "store", 6)
    wrench = replace(SMALL, environment_state="observation.wrench")
    policy = load(train(config(tmp_path / "store", tmp_path / "wrench", diffusion=wrench, steps=1)))
    assert {key: f.unit for key, f in policy.spec.features.items()} == {
        "observation.state": "",
        "observation.wrench": "N",
    }
    alone = replace(SMALL, inputs=("observation.state",))
    policy = load(train(config(tmp_path / "store", tmp_path / "alone", diffusion=alone, steps=1)))
    assert set(policy.spec.features) == {"observation.state"}
    batch = policy.prepare(random_request(policy, torch.Generator()).observation)
    assert torch.equal(batch["observation.state"], batch["observation.environment_state"])
    check_policy(policy)
