from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hardware.action_spec import ActionGroup, ActionSpec
from policies.checkpoint import CheckpointError
from policies.checkpoint import save as save_policy
from policies.conformance import check_policy, random_request
from policies.lerobot.mapping import RobotMapping, read_mapping
from policies.lerobot.payload import write_payload
from policies.loading import load
from policies.parity import check_parity
from policies.policy import PolicyError
from robot_rl.methods import METHODS, check_base
from robot_rl.student import Student
from tests.policies.lerobot.recipes import CAMERA, ENVIRONMENT, RATE, STATE, act_config, feature, save

ARM = ActionSpec(
    (ActionGroup("arm", 3, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,)),), 50.0
)


@pytest.fixture
def act(tmp_path):
    return save(act_config(), tmp_path / "act")


def change(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def statistics_file(folder, which="normalizer"):
    return next(folder.glob(f"*_{which}_processor.safetensors"))


def change_statistics(folder, which="normalizer", **changes):
    path = statistics_file(folder, which)
    tensors = load_file(path) | {name.replace("__", "."): value for name, value in changes.items()}
    save_file({name: value for name, value in tensors.items() if value is not None}, path)


def test_a_checkpoint_says_its_shapes_and_the_caller_its_rate(act, caplog):
    policy = load(act, rate_hz=RATE)
    spec = policy.spec
    assert {key: f.shape for key, f in spec.features.items()} == {STATE: (4,), ENVIRONMENT: (5,)}
    assert (spec.name, spec.horizon, spec.executed_steps, spec.first_action) == ("act", 8, 6, 0)
    assert (spec.rate_hz, spec.action_spec.rate_hz, spec.action_size) == (RATE, RATE, 3)
    assert "does not say what its 3 actions are" in caplog.text
    low, high = (
        load_file(statistics_file(act))[f"action.{name}"].double().numpy() for name in ("min", "max")
    )
    assert spec.action_spec.low == pytest.approx(low - 0.1 * (high - low))
    assert not any(parameter.requires_grad for parameter in policy.parameters())


def test_it_keeps_the_promises_of_a_policy_and_equals_lerobot(act):
    policy = load(act, rate_hz=RATE)
    check_policy(policy)
    assert check_parity(policy).within(0.0)


def test_an_opaque_policy_refuses_noise_and_says_why(act):
    policy = load(act, rate_hz=RATE)
    with pytest.raises(PolicyError, match="one pass, without noise"):
        policy.chunk(random_request(policy, torch.Generator()), noise=torch.zeros(3, 8, 3))


def test_robot_rl_json_says_what_the_checkpoint_does_not(act):
    RobotMapping(rate_hz=10.0, action_spec=ARM, keys={STATE: "observation.joints"}).write(act)
    policy = load(act)
    assert policy.spec.action_spec.names == ARM.names
    assert policy.spec.rate_hz == policy.spec.action_spec.rate_hz == 10.0
    assert "observation.joints" in policy.spec.features
    check_policy(policy)
    assert load(act, rate_hz=5.0).spec.rate_hz == 5.0, "the caller wins"


def test_a_task_says_what_neither_does(act, caplog):
    policy = load(act, default_action_spec=ARM)
    assert policy.spec.action_spec == ARM
    assert "taken as given, arm.x" in caplog.text


def test_without_a_rate_it_is_refused(act):
    with pytest.raises(CheckpointError, match="rate_hz=HZ"):
        load(act)


ALL = ("mean", "std", "min", "max", "q01", "q99", "q10", "q90")
WIDE = {STATE: {"type": "STATE", "shape": [7]}, ENVIRONMENT: {"type": "ENV", "shape": [5]}}
MAPPING = '{"format": "robot-rl mapping", "version": 1, "rate": 3}'
SPOILED = {
    "'observation.state' lack mean": lambda d: change_statistics(d, observation__state__mean=None),
    "no statistics for 'observation.state'.*unnormalised": lambda d: change_statistics(
        d, **{f"observation__state__{name}": None for name in ALL}
    ),
    r"'action' has shape \(3,\), but its std has \(5,\)": lambda d: change_statistics(
        d, action__std=torch.ones(5)
    ),
    "std of 'action' is not finite": lambda d: change_statistics(d, action__std=torch.full((3,), torch.nan)),
    "mean of 'action'.*there and back": lambda d: change_statistics(
        d, "unnormalizer", action__mean=torch.zeros(3)
    ),
    r"'observation.state' has shape \(7,\) in config.json but \(4,\)": lambda d: change(
        d, "config.json", input_features=WIDE
    ),
    "do not fit its configuration": lambda d: change(d, "config.json", dim_model=64),
    "has type 'acct'": lambda d: change(d, "config.json", type="acct"),
    "from_tomorrow.*another version": lambda d: change(d, "config.json", from_tomorrow=1),
    "migrate_policy_normalization": lambda d: (d / "policy_preprocessor.json").unlink(),
    "no model.safetensors": lambda d: (d / "model.safetensors").unlink(),
    "did you mean 'rate_hz'": lambda d: (d / "robot_rl.json").write_text(MAPPING),
}


@pytest.mark.parametrize("said", SPOILED)
def test_a_checkpoint_that_does_not_fit_together_is_refused(act, said):
    SPOILED[said](act)
    with pytest.raises(CheckpointError, match=f"(?is){said}"):
        load(act, rate_hz=RATE)


def test_missing_and_unknown_weights_are_refused(act):
    path = act / "model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    save_file({k: v for k, v in tensors.items() if k != name} | {"more": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match=f"{name} is missing; more is not part"):
        load(act, rate_hz=RATE)


def test_the_hash_covers_weights_and_statistics(act):
    policy = load(act, rate_hz=RATE)
    before = policy.hash()
    assert load(act, rate_hz=RATE).hash() == before
    policy.chunk(random_request(policy, torch.Generator()))
    policy.processors.denormalize(torch.zeros(1, 8, 3, dtype=torch.float64))
    assert policy.hash() == before, "use does not change it"
    change_statistics(act, action__std=torch.ones(3))
    change_statistics(act, "unnormalizer", action__std=torch.ones(3))
    assert load(act, rate_hz=RATE).hash() != before


def test_images_are_read_as_lerobot_reads_them(tmp_path):
    config = act_config(
        input_features={STATE: feature("STATE", 4), CAMERA: feature("VISUAL", 3, 32, 40)},
    )
    policy = load(save(config, tmp_path), rate_hz=RATE)
    assert policy.spec.features[CAMERA].shape == (32, 40, 3)
    assert policy.spec.features[CAMERA].is_image
    check_policy(policy)
    white = torch.full((1, 1, 32, 40, 3), 255, dtype=torch.uint8)
    batch = policy.prepare({STATE: torch.zeros(1, 1, 4), CAMERA: white})
    stats = policy.processors.normalizer.stats[CAMERA]
    expected = (1.0 - torch.tensor(stats["mean"])) / (torch.tensor(stats["std"]) + 1e-8)
    torch.testing.assert_close(batch[CAMERA], expected.expand(1, 3, 32, 40))


def test_pretrained_image_encoders_are_not_downloaded(tmp_path):
    config = act_config(input_features={STATE: feature("STATE", 4), CAMERA: feature("VISUAL", 3, 32, 40)})
    folder = save(config, tmp_path)
    change(folder, "config.json", pretrained_backbone_weights="ResNet18_Weights.IMAGENET1K_V1")
    load(folder, rate_hz=RATE)


def test_what_is_no_policy_lists_what_was_looked_for(tmp_path):
    with pytest.raises(CheckpointError, match=r"policy.json is missing"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match=r"(?s)Looked for:.*robot-rl train.*LeRobot checkpoint"):
        load(tmp_path / "a" / "b" / "c")


def test_the_hub_out_of_reach_is_said_clearly():
    with pytest.raises(CheckpointError, match=r"no folder nobody/nothing.*could not be fetched"):
        load("nobody/nothing", rate_hz=RATE)


def test_a_hub_repository_is_fetched_at_its_revision(act, monkeypatch):
    asked = {}

    def fetch(name, revision=None, allow_patterns=None):
        asked.update(name=name, revision=revision)
        return str(act)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    policy = load("user/act", rate_hz=RATE, revision="v1")
    assert asked == {"name": "user/act", "revision": "v1"}
    assert policy.hash() == load(act, rate_hz=RATE).hash()


def test_an_option_of_no_loader_is_refused(act):
    with pytest.raises(TypeError, match="no option 'rate'; did you mean 'rate_hz'"):
        load(act, rate=3.0)


def test_features_and_actions_offered_must_fit(act):
    RobotMapping(rate_hz=50.0, action_spec=ARM).write(act)
    load(act, action_spec=ARM)
    other = ActionSpec(
        (ActionGroup("arm", 2, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,)),), 50.0
    )
    with pytest.raises(CheckpointError, match="action size is 2, but the policy has 3"):
        load(act, action_spec=other)
    with pytest.raises(CheckpointError, match=f"'{STATE}' is needed"):
        load(act, features={})


def test_the_mapping_of_the_documentation_is_read(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()
    (tmp_path / "robot_rl.json").write_text(page.split("```json\n")[1].split("```")[0])
    mapping = read_mapping(tmp_path)
    assert mapping.action_spec is not None
    assert (mapping.action_spec.size, mapping.rate_hz) == (7, 30.0)
    assert mapping.local == {"openai/clip-vit-base-patch16": str(tmp_path / "clip")}
    again = tmp_path / "again"
    again.mkdir()
    replace(mapping, local={}).write(again)
    assert read_mapping(again) == replace(mapping, local={})


def test_methods_that_act_in_the_denoising_refuse_act_by_name(act):
    policy = load(act, rate_hz=RATE)
    for method in METHODS.values():
        if method.needs:
            with pytest.raises(PolicyError, match=rf"{method.name} needs a policy that .*'act' does not"):
                check_base(policy, method)
        else:
            check_base(policy, method)


def test_a_saved_policy_needs_its_checkpoint_no_more(act, tmp_path):
    policy = load(act, rate_hz=RATE, default_action_spec=ARM, keys={STATE: "observation.joints"})
    save_policy(policy, tmp_path / "saved")
    shutil.rmtree(act)
    again = load(tmp_path / "saved")
    assert again.spec == policy.spec
    assert again.hash() == policy.hash()
    student = Student.from_payload(Student(policy).payload(), Student(policy).tensors())
    request = random_request(policy, torch.Generator())
    assert torch.equal(student.policy.chunk(request), policy.chunk(request))


def test_a_payload_writes_nowhere_else(tmp_path):
    with pytest.raises(ValueError, match=r"no file '\.\./config\.json'"):
        write_payload({"files": {"../config.json": {}}, "statistics": {}}, tmp_path)
