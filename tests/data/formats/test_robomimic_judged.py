"""robomimic itself reads what is written here, and robosuite plays it back."""

import contextlib
import io
import json

import h5py
import numpy as np
import pytest

from data.formats.registry import load, open_source
from data.records import EpisodeBuilder
from data.steps import Outcome, Step
from tests.data.episodes import episode

# Their packages warn while being imported: of missing private macros, old APIs and optional packages.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
KEYS = ("state", "wrench", "tactile.left", "wrist_image")


def quietly(make):
    """Call what prints much."""
    with contextlib.redirect_stdout(io.StringIO()):
        return make()


def sequence_dataset(path, **settings):
    pytest.importorskip("robomimic")
    from robomimic.utils import obs_utils
    from robomimic.utils.dataset import SequenceDataset

    specs = [{"obs": {"low_dim": [key for key in KEYS if key != "wrist_image"], "rgb": ["wrist_image"]}}]
    quietly(lambda: obs_utils.initialize_obs_utils_with_obs_specs(specs))
    return quietly(
        lambda: SequenceDataset(
            hdf5_path=str(path),
            obs_keys=KEYS,
            action_keys=("actions",),
            dataset_keys=("actions", "rewards", "dones"),
            action_config={"actions": {"normalization": None}},
            hdf5_cache_mode=None,
            **settings,
        )
    )


def test_robomimics_own_dataset_gives_every_step_as_it_was(tmp_path):
    given = [episode("a", 5), episode("b", 9, seed=1)]
    load("robomimic").write(given, {}, None, tmp_path / "a.hdf5")
    dataset = sequence_dataset(tmp_path / "a.hdf5", seq_length=1)
    assert dataset.n_demos == 2
    assert len(dataset) == 14
    steps = [(e, t) for e in given for t in range(len(e))]
    for item, (wanted, t) in zip((dataset[i] for i in range(len(dataset))), steps, strict=True):
        np.testing.assert_array_equal(item["actions"][0], wanted.action[t])
        assert item["rewards"][0] == wanted.reward[t]
        assert item["dones"][0] == wanted.terminated[t]
        for key, ours in (
            ("state", "state"),
            ("tactile.left", "tactile.left"),
            ("wrist_image", "images.wrist"),
        ):
            rows = wanted.observations[f"observation.{ours}"]
            np.testing.assert_array_equal(item["obs"][key][0], rows[t])
            np.testing.assert_array_equal(item["next_obs"][key][0], rows[t + 1])


def test_robomimics_own_dataset_follows_our_splits_and_pads_within_a_demo(tmp_path):
    given = [episode("a", 5), episode("b", 9, seed=1)]
    load("robomimic").write(given, {}, None, tmp_path / "a.hdf5", splits={"valid": ["b"]})
    dataset = sequence_dataset(
        tmp_path / "a.hdf5", seq_length=3, frame_stack=2, filter_by_attribute="valid", get_pad_mask=True
    )
    assert len(dataset) == 9
    last = dataset[8]
    np.testing.assert_array_equal(last["actions"], given[1].action[[7, 8, 8, 8]])
    np.testing.assert_array_equal(
        last["obs"]["wrench"], given[1].observations["observation.wrench"][[7, 8, 8, 8]]
    )
    assert last["pad_mask"].ravel().tolist() == [True, True, False, False]


def lift():
    """robosuite's Lift in robomimic's wrapper, and how to make it again."""
    pytest.importorskip("robomimic")
    robosuite = pytest.importorskip("robosuite")
    from robomimic.utils import env_utils, obs_utils
    from robosuite.controllers import load_composite_controller_config

    obs_utils.initialize_obs_utils_with_obs_specs([{"obs": {"low_dim": ["object"], "rgb": []}}])
    env_args = {
        "env_name": "Lift",
        "type": 1,
        "env_version": robosuite.__version__,
        "env_kwargs": {
            "robots": ["Panda"],
            "controller_configs": load_composite_controller_config(robot="Panda"),
            "control_freq": 20,
            "reward_shaping": False,
            "has_renderer": False,
            "has_offscreen_renderer": False,
            "use_camera_obs": False,
            "use_object_obs": True,
            "ignore_done": True,
        },
    }

    def make(arguments):
        return quietly(
            lambda: env_utils.create_env_from_metadata(arguments, render=False, render_offscreen=False)
        )

    return make, json.loads(json.dumps(env_args))


def rollout(env, number, env_args, steps=10):
    rng = np.random.default_rng(number)
    quietly(env.reset)
    start = env.get_state()
    observation = quietly(lambda: env.reset_to(start))
    keys = ("object", "robot0_eef_pos", "robot0_eef_quat")
    metadata = {"env_args": env_args, "model_file": start["model"]}
    builder = EpisodeBuilder(id=f"r{number}", task="lift the cube", metadata=metadata)
    builder.start({f"observation.{key}": observation[key] for key in keys})
    for t in range(steps):
        state = env.get_state()["states"]
        action = rng.uniform(-1, 1, 7)
        observation, reward, _, _ = env.step(action)
        step = Step(
            action=action, reward=reward, truncated=t == steps - 1, wall_time=np.nan, monotonic_time=t / 20
        )
        builder.append(step, {f"observation.{key}": observation[key] for key in keys}, {"states": state})
    return builder.finish(Outcome.UNKNOWN)


@pytest.mark.timeout(600)  # robosuite builds its model anew at every reset
def test_robosuite_plays_back_what_is_written(tmp_path):
    make, env_args = lift()
    env = make(env_args)
    given = [rollout(env, number, env_args) for number in range(2)]
    path = tmp_path / "lift.hdf5"
    load("robomimic").write(given, {}, None, path, valid_fraction=0.5)
    with h5py.File(path) as file:
        again = make(json.loads(file["data"].attrs["env_args"]))
        for number, wanted in enumerate(given):
            demo = file[f"data/demo_{number}"]
            states = demo["states"][:]
            quietly(lambda d=demo, s=states: again.reset_to({"states": s[0], "model": d.attrs["model_file"]}))
            for t, action in enumerate(demo["actions"][:]):
                np.testing.assert_allclose(again.get_state()["states"], states[t], rtol=0, atol=1e-9)
                observation, *_ = again.step(action)
                np.testing.assert_allclose(
                    observation["object"], demo["next_obs/object"][t], rtol=0, atol=1e-9
                )
            assert len(states) == len(wanted) == 10
    assert np.ptp(np.stack([e.extra["states"][0] for e in given]), axis=0).max() > 0  # two different starts
    source = open_source(path)
    assert [e.id for e in source.episodes] == ["r0", "r1"]
