import json
from dataclasses import replace

import h5py
import numpy as np
import pytest

from data.errors import DatasetError
from data.features import Feature
from data.formats.registry import detect, load, open_source
from data.records import equal
from data.steps import Outcome
from hardware.action_spec import ActionSpec
from tests.data.episodes import episode, streaming_episode

OSC = {"type": "OSC_POSE", "input_type": "delta", "input_ref_frame": "base"}
LIFT = {
    "env_name": "Lift",
    "type": 1,
    "env_version": "1.5.1",
    "env_kwargs": {
        "robots": ["Panda"],
        "control_freq": 20,
        "reward_shaping": False,
        "controller_configs": {"type": "BASIC", "body_parts": {"right": OSC}},
    },
}
STEPS = {"demo_0": 3, "demo_2": 4, "demo_10": 2}


def foreign(path, *, dones=(0, 0, 1), rewards=(0, 0, 1), env_args=LIFT, complete=True):
    """A file as another program writes it; demo_0 has the dones and rewards given."""
    rng = np.random.default_rng(8)
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(env_args)
        file["data"].attrs["total"] = 9
        for name, steps in STEPS.items():
            demo = file["data"].create_group(name)
            demo.attrs["num_samples"] = steps
            demo.attrs["model_file"] = f"<mujoco model='{name}'/>"
            demo["actions"] = rng.normal(size=(steps, 7))
            demo["rewards"] = np.array(rewards if name == "demo_0" else [0.0] * steps)
            demo["dones"] = np.array(dones if name == "demo_0" else [0] * steps)
            demo["states"] = rng.normal(size=(steps, 11))
            demo["action_dict/abs_pos"] = rng.normal(size=(steps, 3))
            demo["datagen_info/eef"] = rng.normal(size=(2, 2))
            for key, shape in (("robot0_eef_quat", (4,)), ("object", (10,)), ("robot0_eef_pos", (3,))):
                rows = rng.normal(size=(steps + 1, *shape))
                demo[f"obs/{key}"] = rows[:-1]
                if complete:
                    demo[f"next_obs/{key}"] = rows[1:]
            pictures = rng.integers(0, 256, (steps + 1, 5, 4, 3), dtype=np.uint8)
            demo["obs/agentview_image"] = pictures[:-1]
            if complete:
                demo["next_obs/agentview_image"] = pictures[1:]
        file["mask/train"] = np.array(["demo_0", "demo_10"], dtype="S")
        file.create_dataset("mask/valid", data=["demo_2"], dtype=h5py.string_dtype())
    return path


@pytest.fixture
def ours(tmp_path):
    given = [episode("b", 13), episode("a", 5, seed=1), streaming_episode("c", 7, seed=2)]
    features = {"observation.wrench": Feature((6,), "float32", unit="N")}
    spec = {"groups": [], "rate_hz": 20.0}
    assert load("robomimic").write(given, features, spec, tmp_path / "set.hdf5", valid_fraction=0.4) == ()
    return tmp_path / "set.hdf5", given


def test_what_is_written_reads_back_equal(ours):
    path, given = ours
    assert detect(path) == "robomimic"
    source = open_source(path)
    assert source.count == 3
    assert source.notes == ()
    assert source.features == {"observation.wrench": Feature((6,), "float32", unit="N")}
    assert source.action_spec == {"groups": [], "rate_hz": 20.0}
    for found, wanted in zip(source.episodes, given, strict=True):
        splits = found.metadata["splits"]
        assert equal(found, replace(wanted, metadata={**wanted.metadata, "splits": splits}))


def test_a_file_holds_what_robomimic_looks_for(ours):
    path, given = ours
    with h5py.File(path) as file:
        data = file["data"]
        assert data.attrs["total"] == 25
        assert json.loads(data.attrs["env_args"]) == {"env_name": "robot_rl", "type": 2, "env_kwargs": {}}
        assert list(data) == ["demo_0", "demo_1", "demo_2"]
        for demo, wanted in zip(data.values(), given, strict=True):
            assert demo.attrs["num_samples"] == len(wanted)
            np.testing.assert_array_equal(demo["actions"], wanted.action)
            np.testing.assert_array_equal(demo["rewards"], wanted.reward)
            np.testing.assert_array_equal(demo["dones"], wanted.terminated)
            state = wanted.observations["observation.state"]
            np.testing.assert_array_equal(demo["obs/state"], state[:-1])
            np.testing.assert_array_equal(demo["next_obs/state"], state[1:])
            picture = wanted.observations["observation.images.wrist"]
            np.testing.assert_array_equal(demo["next_obs/wrist_image"], picture[1:])
        train, valid = (set(file[f"mask/{name}"][:]) for name in ("train", "valid"))
    assert len(valid) == 1
    assert train | valid == {b"demo_0", b"demo_1", b"demo_2"}
    assert not train & valid


def test_drawing_the_split_again_gives_the_same(tmp_path):
    given = [episode(f"e{i}", 2, seed=i) for i in range(10)]
    for name in ("a.hdf5", "b.hdf5"):
        load("robomimic").write(given, {}, None, tmp_path / name, valid_fraction=0.3, split_seed=4)
    chosen = [[e.id for e in open_source(tmp_path / n, split="valid").episodes] for n in ("a.hdf5", "b.hdf5")]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 3


def test_splits_follow_labels_and_metadata(tmp_path):
    given = [replace(episode("x", 2), metadata={"splits": ["hard"]}), episode("y", 3)]
    load("robomimic").write(given, {}, None, tmp_path / "a.hdf5", splits={"good": ["y"]})
    source = open_source(tmp_path / "a.hdf5")
    assert [e.metadata.get("splits") for e in source.episodes] == [["hard"], ["good"]]
    with pytest.raises(DatasetError, match=r"Split 'good' names \['z'\]"):
        load("robomimic").write(given, {}, None, tmp_path / "b.hdf5", splits={"good": ["z"]})
    with pytest.raises(ValueError, match="not both"):
        load("robomimic").write(
            given, {}, None, tmp_path / "b.hdf5", splits={"valid": []}, valid_fraction=0.5
        )
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.hdf5"]


def test_unknown_rewards_are_named_and_come_back(tmp_path):
    wanted = replace(episode("x", 4), reward=[0.0, np.nan, np.nan, 1.0])
    state = wanted.observations["observation.state"].copy()
    state[2, 1] = np.nan
    wanted = replace(wanted, observations={**wanted.observations, "observation.state": state})
    notes = load("robomimic").write([wanted, episode("y", 3)], {}, None, tmp_path / "a.hdf5")
    assert [note.split(",")[0] for note in sorted(notes)] == [
        "next_obs/state is not a finite number at 1 steps",
        "obs/state is not a finite number at 1 steps",
        "rewards is not a finite number at 2 steps",
    ]
    assert equal(next(open_source(tmp_path / "a.hdf5").episodes), wanted)


def test_packed_pictures_are_the_same(tmp_path):
    load("robomimic").write([episode("x", 4)], {}, None, tmp_path / "a.hdf5", compression="gzip")
    assert equal(next(open_source(tmp_path / "a.hdf5").episodes), episode("x", 4))


def test_a_foreign_file_is_read_with_its_own_order_of_demos(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    source = open_source(path)
    episodes = list(source.episodes)
    assert [(e.id, len(e)) for e in episodes] == [("demo_0", 3), ("demo_2", 4), ("demo_10", 2)]
    assert [e.metadata["splits"] for e in episodes] == [["train"], ["valid"], ["train"]]
    with h5py.File(path) as file:
        demo = file["data/demo_2"]
        found = episodes[1]
        np.testing.assert_array_equal(found.action, demo["actions"])
        np.testing.assert_array_equal(found.extra["states"], demo["states"])
        np.testing.assert_array_equal(found.extra["action_dict.abs_pos"], demo["action_dict/abs_pos"])
        for name, key in (("robot0_eef_quat", "robot0_eef_quat"), ("agentview_image", "images.agentview")):
            rows = found.observations[f"observation.{key}"]
            np.testing.assert_array_equal(rows[:-1], demo[f"obs/{name}"])
            np.testing.assert_array_equal(rows[1:], demo[f"next_obs/{name}"])
    assert found.metadata["model_file"] == "<mujoco model='demo_2'/>"
    assert found.metadata["env_args"] == LIFT
    assert (found.task, found.robot) == ("Lift", "Panda")
    assert found.monotonic_time.tolist() == [0.0, 0.05, 0.1, 0.15]
    assert "Left out, having no row per step: datagen_info." in source.notes


def test_the_task_of_a_libero_file_is_its_instruction(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        file["data"].attrs["problem_info"] = json.dumps({"language_instruction": "open the drawer"})
    assert next(open_source(path).episodes).task == "open the drawer"
    assert next(open_source(path, task="mine").episodes).task == "mine"


def test_a_foreign_file_written_again_is_the_same(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    source = open_source(path)
    first = list(source.episodes)
    load("robomimic").write(first, source.features, source.action_spec, tmp_path / "b.hdf5")
    assert all(map(equal, open_source(tmp_path / "b.hdf5").episodes, first))
    with h5py.File(path) as a, h5py.File(tmp_path / "b.hdf5") as b:
        for old, new in (("demo_0", "demo_0"), ("demo_2", "demo_1"), ("demo_10", "demo_2")):
            assert a[f"data/{old}"].attrs["model_file"] == b[f"data/{new}"].attrs["model_file"]
            for name in ("actions", "states", "rewards", "dones", "obs/agentview_image", "next_obs/object"):
                np.testing.assert_array_equal(a[f"data/{old}/{name}"], b[f"data/{new}/{name}"])
        assert json.loads(b["data"].attrs["env_args"]) == LIFT
        assert b["mask/train"][:].tolist() == [b"demo_0", b"demo_2"]


def test_pictures_with_the_channels_first_say_so(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            for group in ("obs", "next_obs"):
                demo[f"{group}/chw"] = np.moveaxis(demo[f"{group}/agentview_image"][:], -1, 1)
    source = open_source(path)
    assert source.features["observation.chw"].layout == "chw"
    assert source.features["observation.chw"].shape == (3, 5, 4)
    assert not source.features["observation.chw"].is_image


def test_conventions_of_robosuite_are_stated(tmp_path):
    source = open_source(foreign(tmp_path / "a.hdf5"))
    quaternion = source.features["observation.robot0_eef_quat"]
    assert quaternion.names == ("qx", "qy", "qz", "qw")
    assert quaternion.rotations == ((0, "quaternion_xyzw"),)
    assert source.features["observation.robot0_eef_pos"].unit == "m"
    assert source.features["observation.images.agentview"].layout == "hwc"
    spec = ActionSpec.from_json(source.action_spec)
    assert [(g.name, g.size, g.mode, g.frame, g.rotation) for g in spec.groups] == [
        ("arm", 6, "delta", "base", "rotvec"),
        ("gripper", 1, "absolute", "", "none"),
    ]
    assert spec.rate_hz == 20.0
    assert (spec.low == -1).all()
    old = LIFT["env_kwargs"] | {"controller_configs": {"type": "OSC_POSE", "control_delta": False}}
    source = open_source(foreign(tmp_path / "b.hdf5", env_args=LIFT | {"env_kwargs": old}))
    assert source.action_spec["groups"][0]["mode"] == "absolute"
    source = open_source(foreign(tmp_path / "c.hdf5", env_args=LIFT | {"type": 2}))
    assert source.action_spec is None
    assert source.features["observation.robot0_eef_quat"].rotations == ()


@pytest.mark.parametrize(
    ("dones", "rewards", "how", "terminated", "outcome"),
    [
        ((0, 0, 1), (0, 0, 1), "success", True, Outcome.SUCCESS),
        ((0, 0, 1), (0, 0, 0), "success", False, Outcome.FAILURE),
        ((0, 0, 1), (0, 0, 0), "terminal", True, Outcome.FAILURE),
        ((0, 0, 0), (0, 0, 1), "terminal", False, Outcome.SUCCESS),
        ((0, 1, 1), (0, 1, 1), "success", True, Outcome.SUCCESS),
        ((0, 1, 0), (0, 1, 0), "success", False, Outcome.SUCCESS),
    ],
)
def test_a_done_ends_the_task_only_where_it_can_be_known(tmp_path, dones, rewards, how, terminated, outcome):
    source = open_source(foreign(tmp_path / "a.hdf5", dones=dones, rewards=rewards), dones=how)
    first = next(source.episodes)
    assert first.terminated.tolist() == [False, False, terminated]
    assert first.truncated.tolist() == [False, False, not terminated]
    assert first.outcome is outcome
    assert first.extra["dones"].tolist() == list(dones)
    assert any("go on after a done" in note for note in source.notes) == any(dones[:2])


def test_without_next_observations_the_last_one_is_repeated_or_its_step_left_out(tmp_path):
    path = foreign(tmp_path / "a.hdf5", complete=False)
    source = open_source(path)
    found = list(source.episodes)[1]
    assert len(found) == 4
    assert found.metadata["last_observation"] == "repeated"
    quaternion = found.observations["observation.robot0_eef_quat"]
    np.testing.assert_array_equal(quaternion[-1], quaternion[-2])
    assert any("last one is repeated" in note for note in source.notes)
    shorter = list(open_source(path, last_step="drop").episodes)[1]
    assert len(shorter) == 3
    np.testing.assert_array_equal(shorter.observations["observation.robot0_eef_quat"], quaternion[:-1])


def test_missing_steps_inside_a_demo_are_noticed(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_2/next_obs/object"][1, 3] += 1
    with pytest.raises(DatasetError, match=r"demo_2: next_obs/object\[1\] is not obs/object\[2\]"):
        list(open_source(path).episodes)
    assert len(list(open_source(path, gaps="ignore").episodes)) == 3


def misfits():
    first = episode("first", 4)
    rows = first.observations
    actions = {
        name: np.ones((4, 2)) for name in ("action", "action_base", "action_policy", "action_intended")
    }
    yield (
        "'observation.state' is needed",
        {"observations": {"observation.wrench": rows["observation.wrench"]}},
    )
    yield (
        "'observation.more' is new",
        {"observations": {**rows, "observation.more": rows["observation.state"]}},
    )
    yield "dtype is float64", {"observations": {**rows, "observation.state": np.ones((5, 5))}}
    yield "shape is", {"observations": {**rows, "observation.state": rows["observation.state"][:, :4]}}
    yield "actions have 2 numbers, not 3", {"chunks": (), "chunk_id": [-1] * 4, **actions}


@pytest.mark.parametrize(("words", "change"), list(misfits()))
def test_episodes_of_different_forms_are_not_written_into_one_file(tmp_path, words, change):
    given = [episode("first", 4), replace(episode("other", 4), **change)]
    with pytest.raises(
        DatasetError, match=f"Episode other does not fit the first one: .*{words}.*split --ids"
    ):
        load("robomimic").write(given, {}, None, tmp_path / "set.hdf5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [np.nan, 0.5, 2.0])
def test_dones_other_than_0_and_1_are_refused(tmp_path, value):
    path = foreign(tmp_path / "set.hdf5", dones=(0, 0, value))
    with pytest.raises(DatasetError, match=rf"demo_0: dones holds \[{value}\]; a flag is 0 or 1"):
        list(open_source(path).episodes)


def test_unknown_rewards_are_no_failure(tmp_path):
    path = foreign(tmp_path / "set.hdf5", rewards=(0, np.nan, 0))
    assert next(open_source(path).episodes).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("steps", [1, 2])
def test_the_shortest_episodes_read_back_equal(tmp_path, steps):
    given = [episode("b", steps), streaming_episode("a", steps)]
    load("robomimic").write(given, {}, None, tmp_path / "short.hdf5")
    found = list(open_source(tmp_path / "short.hdf5").episodes)
    assert [equal(*pair) for pair in zip(found, given, strict=True)] == [True, True]


def test_splits_can_be_read_alone(tmp_path):
    path = foreign(tmp_path / "a.hdf5")
    source = open_source(path, split="train")
    assert source.count == 2
    assert [e.id for e in source.episodes] == ["demo_0", "demo_10"]
    with pytest.raises(DatasetError, match=r"no split 'test'; it has \['train', 'valid'\]"):
        open_source(path, split="test")


def test_episodes_of_two_environments_do_not_share_a_file(tmp_path):
    lift = replace(episode("x", 2), metadata={"env_args": LIFT})
    with pytest.raises(DatasetError, match="Episode y is of another environment"):
        load("robomimic").write([lift, episode("y", 2)], {}, None, tmp_path / "a.hdf5")
    load("robomimic").write([lift, episode("y", 2)], {}, None, tmp_path / "a.hdf5", env_args=LIFT)
    with pytest.raises(DatasetError, match="Episode y comes twice"):
        load("robomimic").write([episode("y", 2)] * 2, {}, None, tmp_path / "b.hdf5")
    with pytest.raises(DatasetError, match="no episode to write"):
        load("robomimic").write([], {}, None, tmp_path / "b.hdf5")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.hdf5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["data/demo_2"].attrs.modify("num_samples", 9), "num_samples 9"),
        (lambda f: f["data"].attrs.modify("env_args", "{"), "env_args of data is no JSON"),
        (lambda f: f["data"].attrs.modify("env_args", "[]"), "holds no JSON object"),
        (lambda f: f.move("data/demo_2/next_obs/object", "data/demo_2/next_obs/objects"), "the same names"),
        (lambda f: f.move("data/demo_2/actions", "data/demo_2/action"), "actions .T, A. and obs are needed"),
        (lambda f: f.create_dataset("mask/odd", data=np.arange(3)), "no list of names"),
    ],
)
def test_files_whose_parts_do_not_fit_are_refused(tmp_path, change, message):
    path = foreign(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(DatasetError, match=message):
        list(open_source(path).episodes)


def test_our_own_part_is_checked_too(ours):
    path, _ = ours
    with h5py.File(path, "a") as file:
        del file["data/demo_1/robot_rl/steps"]
    with pytest.raises(DatasetError, match="demo_1: its parts in robot_rl do not fit together"):
        list(open_source(path).episodes)
