import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from data.errors import DatasetError
from data.formats.registry import detect, load, open_source
from data.records import Outcome, Source
from tests.data.episodes import episode
from tests.data.lerobot_folder import CAMERA, FPS, add_columns, grey, write_dataset, write_dataset_v2

STEPS = 16  # of the three episodes, 5 + 7 + 4


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "set")


def at(*rows):
    return np.isin(np.arange(STEPS), rows)


def test_a_dataset_becomes_episodes_and_says_what_was_assumed(dataset):
    assert detect(dataset) == "lerobot"
    source = open_source(dataset)
    assert source.count == 3
    assert source.action_spec is None
    assert sorted(source.features) == [CAMERA, "observation.state"]
    said = " ".join(source.notes)
    for part in ("not measured", "is repeated", "every step counts as 'demo'", "outcome is unknown", "NaN"):
        assert part in said
    assert "every episode counts as cut" in said
    first, second, _ = source.episodes
    assert (second.id, second.task, len(second), second.robot) == ("episode_000001", "place", 7, "test_arm")
    assert second.outcome is Outcome.UNKNOWN
    assert set(second.source) == {Source.DEMO}
    np.testing.assert_array_equal(second.action[:, 0], np.arange(5, 12) + 0.5)
    np.testing.assert_allclose(second.monotonic_time, np.arange(7) / FPS, atol=1e-6)
    assert np.isnan(second.wall_time).all()
    assert np.isnan(second.reward).all()
    assert np.isnan(second.action_base).all()
    assert not second.terminated.any()
    np.testing.assert_array_equal(second.truncated, np.arange(7) == 6)
    state = second.observations["observation.state"]
    np.testing.assert_array_equal(state[:, 0], [*range(5, 12), 11])
    pictures = second.observations[CAMERA]
    assert pictures.shape == (8, 24, 32, 3)
    np.testing.assert_allclose(pictures[:, 20, 28].mean(axis=-1), grey(state[:, 0]), atol=3)
    assert second.metadata["last_observation"] == "repeated"
    assert (len(first), first.task) == (5, "pick")


def test_the_last_step_can_be_dropped_instead(dataset):
    source = open_source(dataset, last_step="drop", cameras=False)
    assert "the last step is dropped" in " ".join(source.notes)
    assert f"Pictures are not read: {CAMERA}" in " ".join(source.notes)
    assert list(source.features) == ["observation.state"]
    found = next(source.episodes)
    assert len(found) == 4
    np.testing.assert_array_equal(found.observations["observation.state"][:, 0], np.arange(5))
    np.testing.assert_array_equal(found.truncated, np.arange(4) == 3)
    assert found.metadata["last_step"] == "dropped"


@pytest.mark.parametrize(
    "key", ["intervention", "complementary_info__is_intervention", "intervene_flag", "is_intervention"]
)
@pytest.mark.parametrize("dtype", ["bool", "float32", "int64"])
def test_columns_that_say_who_acted_are_understood(dataset, key, dtype):
    add_columns(dataset, **{key: (dtype, at(1, 2, 4, 5))})
    first, second, third = open_source(dataset, cameras=False).episodes
    assert first.source.tolist() == ["policy", "human", "human", "policy", "human"]
    assert first.segment_id.tolist() == [0, 1, 1, 2, 3]
    assert first.segment_kind.tolist() == ["none", "correction", "correction", "none", "correction"]
    assert second.source.tolist() == ["human", *["policy"] * 6]
    assert set(third.source) == {"policy"}
    assert not first.extra


def test_rlinf_says_for_whole_episodes_whether_they_succeeded(dataset):
    add_columns(dataset, is_success=("bool", np.arange(STEPS) < 5), intervene_flag=("bool", at()))
    outcomes = [found.outcome for found in open_source(dataset, cameras=False).episodes]
    assert outcomes == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.FAILURE]


def test_ends_are_told_from_cuts(dataset):
    done, success = at(4, 11), at(4)
    add_columns(
        dataset,
        next__done=("bool", done),
        next__success=("bool", success),
        next__reward=("float32", success * 2.5),
    )
    source = open_source(dataset, cameras=False)
    assert "counts as a cut" in " ".join(source.notes)
    first, second, third = source.episodes
    assert (first.terminated[-1], first.truncated[-1], first.outcome) == (True, False, Outcome.SUCCESS)
    assert (second.terminated[-1], second.truncated[-1], second.outcome) == (False, True, Outcome.FAILURE)
    assert (third.terminated[-1], third.truncated[-1], third.outcome) == (False, True, Outcome.UNKNOWN)
    np.testing.assert_array_equal(first.reward, [0, 0, 0, 0, 2.5])
    add_columns(dataset, next__truncated=("bool", at()))
    source = open_source(dataset, cameras=False)
    assert "counts as a cut" not in " ".join(source.notes)
    second = list(source.episodes)[1]
    assert (second.terminated[-1], second.truncated[-1]) == (True, False)


def test_columns_that_say_what_is_known_are_honoured(dataset):
    known = np.arange(STEPS) < 12
    add_columns(
        dataset,
        next__reward=("float32", np.zeros(STEPS)),
        next__success=("bool", at(4)),
        next__done=("bool", at(4, 11, 15)),
        valid__next__reward=("bool", ~at(2)),
        valid__next__success=("bool", known),
    )
    source = open_source(dataset, cameras=False)
    assert "every episode counts as cut" not in " ".join(source.notes)
    first, second, third = source.episodes
    np.testing.assert_array_equal(first.reward, [0, 0, np.nan, 0, 0])
    assert not np.isnan(second.reward).any()
    assert [e.outcome for e in (first, second, third)] == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN]
    assert not first.extra


def test_columns_that_nobody_knows_are_kept_as_diagnostics(dataset):
    add_columns(dataset, complementary_info__discrete_penalty=("float32", np.arange(STEPS) / 2))
    second = list(open_source(dataset, cameras=False).episodes)[1]
    penalty = second.extra["complementary_info.discrete_penalty"]
    np.testing.assert_array_equal(penalty.reshape(-1), np.arange(5, 12) / 2)


def test_columns_of_text_are_named_as_not_read(dataset):
    info = json.loads((dataset / "meta/info.json").read_text())
    info["features"]["subtask"] = {"dtype": "string", "shape": [1], "names": None}
    (dataset / "meta/info.json").write_text(json.dumps(info))
    assert "Columns of text are not read: subtask." in open_source(dataset).notes


def test_codes_that_are_unknown_are_refused(dataset):
    add_columns(dataset, robot_rl__source=("int64", np.full(STEPS, 9)))
    with pytest.raises(DatasetError, match=r"robot_rl.source holds \[9\]; 0 to 3 are known"):
        list(open_source(dataset, cameras=False).episodes)


@pytest.mark.parametrize("key", ["intervention", "next.done", "next.success", "next.truncated", "is_success"])
@pytest.mark.parametrize("value", [np.nan, 0.5])
def test_flags_other_than_0_and_1_are_refused(dataset, key, value):
    add_columns(dataset, **{key.replace(".", "__"): ("float32", np.where(at(2), value, 0.0))})
    with pytest.raises(DatasetError, match=rf"Episode 0 of .*: {key} holds \[{value}\]; a flag is 0 or 1"):
        list(open_source(dataset, cameras=False).episodes)


def test_a_dataset_without_actions_is_refused(dataset):
    info = json.loads((dataset / "meta/info.json").read_text())
    del info["features"]["action"]
    (dataset / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError, match="no column 'action'"):
        list(open_source(dataset, cameras=False).episodes)


def test_version_2_becomes_episodes_too(tmp_path):
    root = write_dataset_v2(tmp_path / "set", images=True)
    third = list(open_source(root).episodes)[2]
    assert (third.id, len(third), third.task) == ("episode_000002", 4, "pick")
    np.testing.assert_array_equal(third.observations[CAMERA][3], third.observations[CAMERA][4])


def test_options_are_checked(dataset):
    with pytest.raises(ValueError, match="did you mean 'last_step'"):
        open_source(dataset, last_steps="drop")
    with pytest.raises(ValueError, match=r"ReadLeRobot.source is 'robot'"):
        open_source(dataset, source="robot")


def test_real_recordings_become_episodes(real_data):
    piper = next(open_source(real_data / "lerobot_v3_piper", cameras=False).episodes)
    assert (len(piper), piper.task, piper.robot) == (300, "pick up the pen", "piper_follower")
    assert piper.observations["observation.state"].shape == (301, 7)
    for name in ("lerobotv3", "lerobotv2", "lerobotv2-image"):
        found = list(open_source(real_data / "lerobot_tiny" / name).episodes)
        assert [(len(each), each.task) for each in found] == [(3, "pick cube")] * 2
        assert found[1].observations["observation.images.cam"].shape == (4, 64, 64, 3)
    for name in ("v2-missing-episodes", "v3-missing-episodes-parquet"):
        assert detect(real_data / "lerobot_invalid" / name) == "lerobot"
        with pytest.raises(DatasetError, match=r"no meta/episodes"):
            open_source(real_data / "lerobot_invalid" / name)


def test_writing_without_lerobot_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lerobot", None)
    monkeypatch.setitem(sys.modules, "lerobot.datasets.lerobot_dataset", None)
    with pytest.raises(ImportError, match=r"Writing a LeRobotDataset needs .*robot-rl\[lerobot\]"):
        load("lerobot").write([episode()], {}, None, tmp_path / "new")
    outside = replace(episode(), observations={"../../etc": np.zeros((14, 1))})
    with pytest.raises(ValueError, match=r"'../../etc' cannot name"):
        load("lerobot").write([outside], {}, None, tmp_path / "new")
    with pytest.raises(DatasetError, match="no episodes"):
        load("lerobot").write([], {}, None, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
