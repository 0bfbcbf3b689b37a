import importlib
import json

import numpy as np
import pytest

TINY = ["--episodes", "2", "--steps", "5", "--repeats", "1"]


@pytest.fixture
def store_speed():
    return importlib.import_module("store_speed")


def test_writes_a_figure_for_writing_and_reading(store_speed, tmp_path, monkeypatch):
    monkeypatch.setattr(store_speed.importlib.util, "find_spec", lambda _: None)
    path = tmp_path / "store.json"
    store_speed.main([*TINY, "--json", str(path)])

    written = json.loads(path.read_text())
    assert [figure["name"] for figure in written["figures"]] == ["our store, write", "our store, read"]
    assert {figure["clock"] for figure in written["figures"]} == {"wall"}
    assert written["skipped"] == {"HDF5": "h5py is not installed"}


def test_compares_writing_with_writing_and_reading_with_reading(store_speed, tmp_path):
    pytest.importorskip("h5py")
    path = tmp_path / "store.json"
    store_speed.main([*TINY, "--json", str(path)])
    peers = {figure["name"]: figure["peer"] for figure in json.loads(path.read_text())["figures"]}
    assert peers["our store, write"] == "HDF5, write"
    assert peers["our store, read"] == "HDF5, read"


def test_peer_stores_what_we_store(store_speed, tmp_path):
    h5py = pytest.importorskip("h5py")
    episode = store_speed.made_up_episode(0, 4)
    files = store_speed.Hdf5Files(tmp_path / "peer")
    files.write(episode)

    assert files.read(episode.id) == 4
    with h5py.File(tmp_path / "peer" / f"{episode.id}.h5") as file:
        np.testing.assert_array_equal(file["action"], episode.action)
        for key, rows in episode.observations.items():
            np.testing.assert_array_equal(file[key], rows)
        assert {"reward", "chunk_id", "contact_force_n", "source"} <= set(file)
