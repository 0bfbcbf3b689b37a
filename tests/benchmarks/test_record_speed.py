import importlib
import json

import numpy as np
import pytest

from data.images import PictureCodec
from data.store import EpisodeStore

TINY = ["--frames", "4", "--repeats", "1", "--seconds", "0.1"]


@pytest.fixture
def record_speed(monkeypatch):
    found = importlib.import_module("record_speed")
    small = found.pictures
    monkeypatch.setattr(found, "pictures", lambda count, height, width, seed=0: small(count, 24, 32, seed))
    monkeypatch.setattr(found.importlib.util, "find_spec", lambda _: None)
    return found


def test_writes_a_figure_for_each_part(record_speed, tmp_path, capsys):
    path = tmp_path / "record.json"
    record_speed.main([*TINY, "--json", str(path)])
    written = json.loads(path.read_text())
    names = [figure["name"] for figure in written["figures"]]
    assert names[0] == "our recorder"
    assert names[1].startswith("control loop held up")
    assert [name.rpartition(" ")[2] for name in names[2:]] == ["lossless", "jpeg"]
    assert written["skipped"] == {"LeRobotDataset": "lerobot is not installed"}
    values = written["figures"][2]["values"]
    assert values["dropped"] == {}
    assert values["frames"] == 3
    assert values["calls"] == 50 + 4 * 3
    assert values["copy_calls"] == 3 * 3
    assert values["max_faults"] <= values["faults"]
    assert "GB/h" in capsys.readouterr().out


def test_what_is_timed_is_recorded_whole(record_speed, tmp_path):
    material = record_speed.Material(4)
    store = EpisodeStore(tmp_path / "s", pictures=PictureCodec())
    recorder = store.recorder(id="e", task="t")
    record_speed.record_ours(recorder, material)
    recorder.finish()
    found = store.read("e")
    np.testing.assert_array_equal(
        found.observations[record_speed.CAMERAS[1]], material.cameras[record_speed.CAMERAS[1]]
    )
    assert len(np.unique(found.observations[record_speed.CAMERAS[0]], axis=0)) == 5  # it moves
