"""The plugin as LeRobot uses it: found by name, loaded, asked under inference mode, saved."""

import json
import shutil
import tomllib

import numpy as np
import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.envs.utils import preprocess_observation
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.rollout.inference.rtc import supports_rtc_inference

import lerobot_policy_robot_rl  # noqa: F401 - registers the policy
from policies.lerobot.base import lerobot_image
from policies.lerobot.from_lerobot import robot_image, robot_observation
from policies.loading import load
from robot_rl.control import ControlLoop
from robot_rl.export import ExportConfig, export
from robot_rl.guide.real_time import RealTimeChunking
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from tests.conftest import REPOSITORY
from tests.plugins.hooks import Halve
from tests.policies.tools import FEATURES as ALL_KINDS
from tests.robot_rl.toy import Toy


def opened(folder, **changes):
    config = PreTrainedConfig.from_pretrained(folder)
    for name, value in changes.items():
        setattr(config, name, value)
    return get_policy_class("robot_rl").from_pretrained(folder, config=config)


def exported_with(base, tmp_path, hook, **options):
    folder = tmp_path / "refiner"
    save_refiner(folder, Refiner(hooks=(hook,), base_hash=load(base).hash()))
    return export(ExportConfig(policy=base, refiner=(folder,), out=tmp_path / "out", **options))


def lerobot_episode(policy, processors, episodes):
    """Run LeRobot's part of its evaluation loop on recorded observations; actions (B, T, A)."""
    before, after = processors
    policy.reset()
    acted = []
    for step in range(max(map(len, episodes))):
        state = np.stack([e.observations["observation.state"][min(step, len(e))] for e in episodes])
        batch = preprocess_observation({"agent_pos": state})
        batch["task"] = [Toy.task_text] * len(episodes)
        with torch.inference_mode():
            action = policy.select_action(before(batch))
        acted.append(after(action).numpy())
    return np.stack(acted, 1)


@pytest.mark.parametrize("part", ["corrector", "gradient hook"])
def test_lerobots_loop_draws_what_ours_draws_on_the_same_seeds(base, corrected, tmp_path, part):
    if part == "corrector":
        folder = export(ExportConfig(policy=base, refiner=(corrected,), out=tmp_path / "out", seed=5))
    else:
        folder = exported_with(base, tmp_path, Halve(), seed=5)
    refiner = load_refiner(folder / "refiner")
    loop = ControlLoop([Toy() for _ in range(3)], load(base), refiner)
    policy = opened(folder)
    processors = make_pre_post_processors(
        policy.config,
        str(folder),
        preprocessor_overrides={
            "device_processor": {"device": "cpu"},
            "rename_observations_processor": {"rename_map": {}},
        },
    )
    for first in (5, 8):
        episodes = loop.run(range(first, first + 3))
        for acted, episode in zip(lerobot_episode(policy, processors, episodes), episodes, strict=True):
            np.testing.assert_array_equal(acted[: len(episode)], episode.action)
    bare = ControlLoop([Toy()], load(base)).run([5])[0]
    assert not np.array_equal(bare.action[0], loop.run([5, 6, 7])[0].action[0])


def test_the_folder_holds_the_refiner_and_no_weights_of_the_base(base, exported):
    config = json.loads((exported / "config.json").read_text())
    assert config["type"] == "robot_rl"
    assert (exported / config["base"]).resolve() == base
    assert config["base"].startswith("..")
    assert config["base_hash"] == load(base).hash()
    assert config["input_features"] == {"observation.state": {"type": "STATE", "shape": [2]}}
    assert (config["chunk_size"], config["n_action_steps"]) == (4, 2)
    weights = sorted(path.name for path in exported.rglob("*.safetensors"))
    assert weights == ["correct.safetensors"]
    # An export replaces an export, and nothing else.
    (exported.parent / "other").mkdir()
    (exported.parent / "other" / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds other files"):
        export(ExportConfig(policy=base, out=exported.parent / "other"))


def test_it_is_saved_again_elsewhere_and_finds_its_base(exported, tmp_path):
    policy = opened(exported)
    again = tmp_path / "deep" / "er" / "copy"
    policy.save_pretrained(again)
    assert opened(again).refiner.version == policy.refiner.version
    moved = shutil.move(exported, tmp_path / "deep" / "moved")
    with pytest.raises(ValueError, match=r"(?s)there is no policy at .* --policy.base=PATH"):
        opened(moved)


def test_a_changed_base_is_refused_and_another_place_may_be_named(base, exported, tmp_path):
    other = shutil.copytree(base, tmp_path / "base copy")
    assert opened(exported, base=str(other)).refiner.correct is not None
    with pytest.raises(ValueError, match=r"has changed: its hash is .* was exported"):
        opened(exported, base_hash="0" * 64)


def test_a_chunk_begins_at_the_present_and_a_corrector_gives_none(base, exported, tmp_path):
    batch = {"observation.state": torch.zeros(2, 2), "task": ["", ""]}
    with torch.inference_mode(), pytest.raises(ValueError, match="corrects each control step"):
        opened(exported).predict_action_chunk(batch)
    policy = opened(exported_with(base, tmp_path, Halve()))
    with torch.inference_mode():
        chunk = policy.predict_action_chunk(batch)
        other = policy.predict_action_chunk(batch)
        policy.reset()
    assert chunk.shape == (2, 4, 2)
    assert not torch.equal(chunk, other)  # each has noise of its own


def test_in_lerobots_real_time_loop_the_chunk_joins_the_last(base, exported, tmp_path):
    """LeRobot 0.6.1 fills a short rest with zeros, which pull to the mean of the data (its #4454)."""
    assert not supports_rtc_inference(opened(exported))
    policy = opened(exported_with(base, tmp_path, RealTimeChunking()))
    assert supports_rtc_inference(policy)
    batch = {"observation.state": torch.zeros(1, 2), "task": [""]}
    rest = torch.tensor([[0.1, -0.1], [0.05, 0.15]])
    padded = torch.cat([rest, torch.zeros(2, 2)])

    def ask(left):
        policy.reset()
        policy._next_seed = 3
        return policy.predict_action_chunk(batch, inference_delay=3, prev_chunk_left_over=left)

    joined = ask(rest)
    torch.testing.assert_close(joined[0, :2], rest, atol=1e-5, rtol=0)
    assert torch.equal(joined, ask(padded))
    free = ask(None)
    assert torch.equal(free, ask(torch.zeros(4, 2)))  # nothing but padding is left
    assert not torch.allclose(free, joined)
    with pytest.raises(ValueError, match="2\\) is needed"):
        ask(torch.zeros(2, 3))


def test_it_is_not_trained(exported):
    policy = opened(exported)
    assert not policy.train().training
    assert not any(parameter.requires_grad for parameter in policy.parameters())
    for call in (policy.get_optim_params, lambda: policy.forward({}), policy.config.get_optimizer_preset):
        with pytest.raises(NotImplementedError, match="robot-rl refine"):
            call()
    with pytest.raises(ValueError, match="robot-rl export"):
        get_policy_class("robot_rl")(policy.config)


def test_images_come_back_to_the_bit_and_normalised_ones_are_refused():
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(1, 16, 16, 3)
    assert torch.equal(robot_image(lerobot_image(levels)), levels)
    batch = {
        key: lerobot_image(torch.zeros(2, *f.shape)) if f.is_image else torch.zeros(2, *f.shape)
        for key, f in ALL_KINDS.items()
    }
    batch["observation.state"] = batch["observation.state"].double()
    found = robot_observation(
        {**batch, "action": None, "observation.images.other": torch.ones(2, 3, 4, 5)}, ALL_KINDS
    )
    for key, feature in ALL_KINDS.items():
        assert (tuple(found[key].shape), str(found[key].dtype)) == (
            (2, *feature.shape),
            f"torch.{feature.dtype}",
        )
    assert found["observation.images.other"].shape == (2, 4, 5, 3)
    with pytest.raises(ValueError, match="must lie in 0"):
        robot_observation({**batch, "observation.images.front": torch.full((2, 3, 12, 20), -1.0)}, ALL_KINDS)
    with pytest.raises(ValueError, match=r"'observation.state' has shape \(2, 4\)"):
        robot_observation({**batch, "observation.state": torch.zeros(2, 4)}, ALL_KINDS)
    with pytest.raises(ValueError, match=r"lacks \['observation.state'\]"):
        robot_observation({}, {"observation.state": ALL_KINDS["observation.state"]})


@pytest.mark.parametrize("name", ["lerobot_policy_robot_rl", "lerobot_env_robot_rl"])
def test_a_plugin_is_named_as_lerobot_looks_for_it(name):
    project = tomllib.loads((REPOSITORY / "plugins" / name / "pyproject.toml").read_text())["project"]
    assert project["name"] == name  # with hyphens LeRobot would not find it
    ours = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["version"] == ours["version"]
    assert (REPOSITORY / "plugins" / name / name / "__init__.py").is_file()
