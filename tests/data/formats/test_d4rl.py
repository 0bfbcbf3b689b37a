import h5py
import numpy as np
import pytest

from data.errors import DatasetError
from data.formats.registry import detect, open_source
from data.records import equal
from data.store import EpisodeStore
from tests.data.formats.real import REAL, needs


def arrays(steps=7):
    """Rows 0-2 end in a terminal, 3-4 in a jump without a flag, 5-6 with the file."""
    rng = np.random.default_rng(3)
    observations = rng.normal(size=(steps, 2)).astype(np.float32)
    after = np.concatenate([observations[1:], rng.normal(size=(1, 2)).astype(np.float32)])
    after[2] = [20.0, -21.0]
    after[4] = [40.0, -41.0]
    return {
        "observations": observations,
        "next_observations": after,
        "actions": rng.normal(size=(steps, 3)).astype(np.float32),
        "rewards": np.arange(steps, dtype=np.float32) / 8,
        "terminals": np.arange(steps) == 2,
        "contact": np.arange(steps, dtype=np.int16) * 3,
    }


def write(path, content, **settings):
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            file.create_dataset(name, data=value, **settings)
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "flat.hdf5", arrays())


def test_episodes_end_at_terminals_and_at_jumps_that_no_flag_marks(file):
    assert detect(file) == "d4rl"
    source = open_source(file)
    first, second, third = source.episodes
    given = arrays()
    assert source.count == 3
    assert [len(e) for e in (first, second, third)] == [3, 2, 2]
    assert first.terminated.tolist() == [False, False, True]
    assert not first.truncated.any()
    assert second.truncated.tolist() == [False, True]
    assert not second.terminated.any()
    assert third.truncated.tolist() == [False, True]
    np.testing.assert_array_equal(
        second.observations["observation.state"], [*given["observations"][3:5], given["next_observations"][4]]
    )
    np.testing.assert_array_equal(third.action, given["actions"][5:].astype(float))
    assert third.reward.tolist() == [5 / 8, 6 / 8]
    assert third.extra["contact"].tolist() == [15, 18]
    assert first.source.tolist() == ["demo"] * 3
    assert "2 of 3 ends have no flag" in " ".join(source.notes)


def test_no_transition_crosses_an_end(file):
    given = arrays()
    for episode in open_source(file).episodes:
        first, stop = episode.metadata["rows"]
        states = episode.observations["observation.state"]
        np.testing.assert_array_equal(states[:-1], given["observations"][first:stop])
        np.testing.assert_array_equal(states[1:], given["next_observations"][first:stop])


def test_timeouts_are_cuts_and_a_terminal_beside_one_is_an_end(tmp_path):
    content = arrays()
    del content["next_observations"]
    content["timeouts"] = np.isin(np.arange(7), [2, 4])
    source = open_source(write(tmp_path / "a.h5", content))
    first, second, third = source.episodes
    assert [len(e) for e in (first, second, third)] == [3, 2, 2]
    assert first.terminated[-1]
    assert not first.truncated[-1]
    assert second.truncated[-1]
    assert second.metadata["last_observation"] == "repeated"
    np.testing.assert_array_equal(second.observations["observation.state"][-1], content["observations"][4])
    assert any("last one is repeated" in note for note in source.notes)


def test_the_last_step_may_be_left_out_and_is_kept_in_the_metadata(tmp_path):
    content = arrays()
    del content["next_observations"]
    first, second = open_source(write(tmp_path / "a.h5", content), last_step="drop").episodes
    assert len(first) == 2
    assert not first.terminated.any()
    assert first.truncated.tolist() == [False, True]
    assert first.metadata["dropped_step"] == {
        "action": content["actions"][2].tolist(),
        "reward": 0.25,
        "terminated": True,
    }
    assert len(second) == 3


def test_times_are_nan_unless_a_rate_is_stated(file):
    unknown = next(open_source(file).episodes)
    assert np.isnan(unknown.monotonic_time).all()
    assert np.isnan(unknown.wall_time).all()
    nominal = next(open_source(file, rate_hz=20.0).episodes)
    assert nominal.monotonic_time.tolist() == [0.0, 0.05, 0.1]
    assert nominal.metadata["times"] == "nominal 20 Hz"
    with pytest.raises(ValueError, match="rate_hz is -1"):
        open_source(file, rate_hz=-1.0)


def test_what_is_read_can_be_stored(file, tmp_path):
    store = EpisodeStore(tmp_path / "store", features=open_source(file).features)
    for episode in open_source(file).episodes:
        store.write(episode)
    assert all(map(equal, store, open_source(file).episodes))


def test_rewards_that_are_not_recorded_are_nan(tmp_path):
    content = arrays()
    del content["rewards"]
    source = open_source(write(tmp_path / "a.h5", content))
    assert np.isnan(next(source.episodes).reward).all()
    assert "Rewards are not recorded and are NaN." in source.notes


def test_a_nan_observation_is_no_jump(tmp_path):
    content = arrays()
    content["observations"][1, 0] = np.nan
    content["next_observations"][0, 0] = np.nan
    assert open_source(write(tmp_path / "a.h5", content)).count == 3


def test_infos_become_diagnostics_and_the_rest_is_named(tmp_path):
    content = arrays() | {"infos/qpos": np.arange(14.0).reshape(7, 2), "metadata/algorithm": np.arange(3)}
    source = open_source(write(tmp_path / "a.h5", content))
    assert list(source.episodes)[1].extra["infos.qpos"].tolist() == [[6.0, 7.0], [8.0, 9.0]]
    assert "Left out, having no row per step: metadata." in source.notes


def test_names_that_would_share_a_key_are_refused(tmp_path):
    content = arrays() | {"a b": np.arange(7), "a:b": np.arange(7) + 50}
    with pytest.raises(DatasetError, match="would share a key"):
        open_source(write(tmp_path / "a.h5", content))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("actions", np.zeros(7), "are needed"),
        ("actions", np.zeros((6, 3)), "all need as many"),
        ("rewards", np.zeros((7, 2)), r"rewards has shape \(7, 2\)"),
        ("next_observations", np.zeros((7, 3)), "twice alike"),
        ("terminals", np.array([b"x"] * 7), "only plain numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, name, value, message):
    path = write(tmp_path / "a.h5", arrays() | {name: value})
    with pytest.raises(DatasetError, match=message):
        list(open_source(path, "d4rl").episodes)


@needs("d4rl_style/10_episodes.hdf5")
def test_a_real_file_has_nine_time_outs_that_only_its_next_observations_show():
    file = REAL / "d4rl_style/10_episodes.hdf5"
    source = open_source(file)
    episodes = list(source.episodes)
    assert [len(e) for e in episodes] == [1000] * 20
    assert sum(e.terminated[-1] for e in episodes) == 10
    assert sum(e.truncated[-1] for e in episodes) == 10  # nine jumps, and the end of the file
    with h5py.File(file) as flat:
        observations, after = flat["observations"][:], flat["next_observations"][:]
        actions = flat["actions"][:].astype(float)
    states = [e.observations["observation.state"] for e in episodes]
    np.testing.assert_array_equal(np.concatenate([s[:-1] for s in states]), observations)
    np.testing.assert_array_equal(np.concatenate([s[1:] for s in states]), after)
    np.testing.assert_array_equal(np.concatenate([e.action for e in episodes]), actions)


@pytest.mark.parametrize("name", ["terminals", "timeouts"])
@pytest.mark.parametrize("value", [np.nan, 0.5, 2.0, -1.0])
def test_flags_other_than_0_and_1_are_refused(tmp_path, name, value):
    path = write(tmp_path / "flat.hdf5", arrays() | {name: np.array([0, 0, 1, 0, value, 0, 0])})
    with pytest.raises(DatasetError, match=rf"{name} holds \[{value}\]; a flag is 0 or 1"):
        list(open_source(path).episodes)
