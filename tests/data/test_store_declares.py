"""What a store declares: features and actions that its episodes are held to."""

import numpy as np
import pytest

from data.errors import LockedStoreError, StoreError
from data.features import Feature, from_array
from data.manifest import write_new_bytes
from data.records import Step
from data.store import EpisodeStore
from tests.data.episodes import (
    episode,
    record,
    streaming_episode,
)


def test_features_and_action_are_kept_and_others_refused(tmp_path):
    features = {key: from_array(rows[0]) for key, rows in episode().observations.items()}
    features["observation.state"] = Feature((5,), "float32", "rad", tuple("abcde"))
    store = EpisodeStore(tmp_path / "s", features=features, action_spec={"rate_hz": 20.0})
    store.write(episode())
    again = EpisodeStore(tmp_path / "s")
    assert again.features == features
    assert again.action_spec == {"rate_hz": 20.0}
    with pytest.raises(StoreError, match=r"observation.state.*shape is \(5,\) in the store but \(4,\)"):
        EpisodeStore(tmp_path / "s", features={"observation.state": Feature((4,), "float32")})
    with pytest.raises(StoreError, match="another action"):
        EpisodeStore(tmp_path / "s", action_spec={"rate_hz": 10.0})


def test_an_episode_without_a_declared_sensor_is_refused(tmp_path):
    store = EpisodeStore(tmp_path / "s", features={"observation.depth": Feature((2,), "float32")})
    with pytest.raises(StoreError, match=r"Episode one does not fit.*observation.depth"):
        store.write(episode())
    assert len(store) == 0


def test_an_episode_with_an_observation_that_is_not_declared_is_refused(tmp_path):
    features = {"observation.state": Feature((5,), "float32")}
    store = EpisodeStore(tmp_path / "s", features=features)
    with pytest.raises(StoreError, match=r"Episode one does not fit.*'observation.wrench' is not declared"):
        store.write(episode())
    assert len(store) == 0


def test_an_episode_whose_actions_have_another_length_is_refused(tmp_path):
    spec = {"groups": [{"name": "arm", "size": 7}], "rate_hz": 20.0}
    store = EpisodeStore(tmp_path / "s", action_spec=spec)
    with pytest.raises(StoreError, match=r"Episode one does not fit.*have 3 numbers; 7 are declared"):
        store.write(episode())
    recorder = store.recorder(id="r", task="t")
    recorder.start({"observation.state": np.zeros(5, np.float32)})
    with pytest.raises(StoreError, match=r"Episode r does not fit.*have 1 numbers; 7 are declared"):
        recorder.append(
            Step(action=[0], wall_time=0.0, monotonic_time=0.0),
            {"observation.state": np.zeros(5, np.float32)},
        )
    assert len(recorder) == 0
    recorder.close()
    assert len(store) == 0


def test_a_declared_sensor_may_be_a_stream(tmp_path):
    features = {key: from_array(rows[0]) for key, rows in episode().observations.items()}
    store = EpisodeStore(
        tmp_path / "s", features=features | {"observation.images.gel": Feature((6, 4, 3), "uint8")}
    )
    store.write(streaming_episode())
    with pytest.raises(StoreError, match=r"observation\.images\.gel.*missing"):
        store.write(episode())


def test_a_recording_without_a_declared_sensor_is_not_finished_but_can_be_recovered(tmp_path):
    features = {"observation.state": Feature((5,), "float32"), "observation.wrench": Feature((6,), "float32")}
    store = EpisodeStore(tmp_path / "s", features=features)
    recorder = store.recorder(id="d", task="t")
    with pytest.raises(StoreError, match=r"observation.state.*shape is \(4,\) in the recording"):
        recorder.start({"observation.state": np.zeros(4, np.float32)})
    recorder.start({"observation.state": np.zeros(5, np.float32)})
    step = Step(action=[0], wall_time=0.0, monotonic_time=0.0)
    recorder.append(step, {"observation.state": np.zeros(5, np.float32)})
    with pytest.raises(StoreError, match=r"\['observation.wrench'\] never came"):
        recorder.finish()
    recorder.stream("observation.wrench", 0.1, 0.1, np.zeros(6, np.float32))
    recorder.finish("success")
    other = store.recorder(id="e", task="t")
    other.start({"observation.state": np.zeros(5, np.float32)})
    other.append(step, {"observation.state": np.zeros(5, np.float32)})
    other.flush()
    other.close()
    assert len(store.recover("e")) == 1


def test_without_a_declaration_features_are_those_of_the_data(store):
    assert store.features["observation.images.wrist"] == Feature((8, 6, 3), "uint8")
    assert store.action_spec is None


def test_two_programs_that_make_one_store_agree_on_what_it_declares(tmp_path, monkeypatch):
    features = {key: from_array(rows[0]) for key, rows in episode().observations.items()}
    first = EpisodeStore(tmp_path / "s", features=features)
    late = EpisodeStore(tmp_path / "s")
    begun = []

    def overtaken(path, content):
        monkeypatch.undo()
        begun.append(record(first, "a", 3))
        return write_new_bytes(path, content)

    monkeypatch.setattr("data.store_root.write_new_bytes", overtaken)
    with pytest.raises(LockedStoreError, match="another writer"):
        late.recorder(id="b", task="t")
    begun[0].discard()
    assert EpisodeStore(tmp_path / "s").features == features
