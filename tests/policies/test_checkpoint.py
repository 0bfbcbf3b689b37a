from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest
import torch

from data.features import Feature
from data.manifest import sha256_bytes
from hardware.action_spec import ActionSpec
from policies.checkpoint import CheckpointError, load, read_tensors, save, separate_tensors
from policies.hashing import policy_hash
from policies.template_policy import HoldPolicy
from tests.policies.tools import FEATURES, SPEC, flow_policy, request


def test_a_tensor_held_under_two_names_is_saved_under_both():
    shared = torch.arange(6.0)
    separate = separate_tensors({"a": shared, "b": shared, "part": shared[2:4], "c": torch.ones(2)})
    assert torch.equal(separate["a"], separate["b"])
    assert torch.equal(separate["part"], shared[2:4])
    assert len({value.untyped_storage().data_ptr() for value in separate.values()}) == 4


def test_loaded_policy_is_equal_to_the_bit_and_frozen(tmp_path, device) -> None:
    policy = flow_policy(inputs=("observation.state", "observation.images.front", "task")).eval()
    loaded = load(save(policy, tmp_path / "p"), device)
    assert loaded.hash() == policy.hash()
    assert loaded.device.type == torch.device(device).type
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert not loaded.training
    asked, noise = request(3), torch.randn(3, 6, 3)
    if device == "cpu":
        assert torch.equal(loaded.chunk(asked, noise=noise), policy.chunk(asked, noise=noise))
    assert loaded.spec == policy.spec


def test_opaque_policies_are_saved_too(tmp_path) -> None:
    policy = HoldPolicy((0.01, 0.0, -0.01))
    assert load(save(policy, tmp_path)).hash() == policy.hash()
    assert (
        json.loads((tmp_path / "policy.json").read_text())["class"] == "policies.template_policy:HoldPolicy"
    )


def test_saving_again_replaces_the_old_policy_whole(tmp_path) -> None:
    save(flow_policy(seed=0), tmp_path)
    save(flow_policy(seed=1), tmp_path)
    assert load(tmp_path).hash() == flow_policy(seed=1).hash()
    assert len(list(tmp_path.iterdir())) == 2


def test_other_features_are_refused_by_naming_the_difference(tmp_path) -> None:
    save(flow_policy(), tmp_path)
    load(tmp_path, features=FEATURES, action_spec=SPEC)
    wider = FEATURES | {"observation.state": Feature((7,), "float32")}
    with pytest.raises(CheckpointError, match=r"observation\.state.*\(7,\).*\(5,\)"):
        load(tmp_path, features=wider)
    with pytest.raises(CheckpointError, match=r"observation\.state.*missing"):
        load(tmp_path, features={"observation.position": FEATURES["observation.position"]})
    group = replace(SPEC.groups[0], mode="absolute")
    with pytest.raises(CheckpointError, match=r"modes is \('absolute',\).*rate is 10"):
        load(tmp_path, action_spec=ActionSpec((group,), 10.0))


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "policy.pkl"])
def test_pickles_are_refused(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({"weights": 1}))
    for place in (tmp_path, tmp_path / name):
        with pytest.raises(CheckpointError, match=f"{name}.*pickled weights can run code"):
            load(place)


def test_damage_versions_and_absence_are_told_apart(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="holds no policy"):
        load(tmp_path / "nothing")
    save(flow_policy(), tmp_path)
    header = json.loads((tmp_path / "policy.json").read_text())
    tensors = tmp_path / header["tensors"]["file"]
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="checksum"):
        load(tmp_path)
    (tmp_path / "policy.json").write_text(json.dumps(header | {"version": 99}))
    with pytest.raises(CheckpointError, match="version 99; this program reads 'robot-rl policy' version 1"):
        load(tmp_path)
    (tmp_path / "policy.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        load(tmp_path)


def test_tensors_outside_the_folder_are_not_reached(tmp_path) -> None:
    save(flow_policy(), tmp_path / "a")
    header = json.loads((tmp_path / "a" / "policy.json").read_text())
    (tmp_path / "b").mkdir()
    header["tensors"]["file"] = f"../a/{header['tensors']['file']}"
    (tmp_path / "b" / "policy.json").write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match="incomplete"):
        load(tmp_path / "b")


def test_hash_sees_names_values_and_buffers_but_not_order_or_device(device) -> None:
    policy = flow_policy()
    before = policy_hash(policy)
    assert policy_hash(policy.to(device)) == before
    with torch.no_grad():
        policy.action_normalizer.scale[0].mul_(1.0 + 1e-6)
    changed = policy_hash(policy)
    assert changed != before
    first = torch.nn.ParameterDict({"a": torch.zeros(2), "b": torch.ones(2)})
    second = torch.nn.ParameterDict({"b": torch.ones(2), "a": torch.zeros(2)})
    third = torch.nn.ParameterDict({"b": torch.zeros(2), "a": torch.ones(2)})
    assert policy_hash(first) == policy_hash(second) != policy_hash(third)


def test_a_pickle_or_half_a_file_under_a_safetensors_name_is_refused_in_one_sentence(tmp_path) -> None:
    save(flow_policy(), tmp_path)
    header = json.loads((tmp_path / "policy.json").read_text())
    file = tmp_path / header["tensors"]["file"]
    for content in (pickle.dumps({"weights": 1}), file.read_bytes()[:50], b""):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            read_tensors(file)
        forged = header | {"tensors": {"file": file.name, "sha256": sha256_bytes(content)}}
        (tmp_path / "policy.json").write_text(json.dumps(forged))
        with pytest.raises(CheckpointError, match="does not fit its class"):
            load(tmp_path)
