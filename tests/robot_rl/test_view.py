import subprocess
import sys

import numpy as np
import pytest

from data.records import EpisodeBuilder, Step
from data.store import EpisodeStore
from robot_rl import view


@pytest.fixture
def episode():
    builder = EpisodeBuilder(id="toy-3", task="go", seed=3)
    picture = np.zeros((8, 8, 3), np.uint8)
    see = {"observation.state": np.zeros(2, np.float32), "observation.images.top": picture}
    builder.start(see)
    for step in range(4):
        made = Step(action=np.full(2, step), wall_time=0.0, monotonic_time=0.1 * step)
        builder.append(made, see, {"contact_force_n": np.asarray(float(step))})
    return builder.finish("success")


def test_every_sensor_and_action_becomes_a_series_and_empty_columns_do_not(episode):
    found = dict(view.series(episode))
    assert set(found) == {"observation/state", "action/executed", "extra/contact_force_n", "reward", "gain"}
    assert found["observation/state"].shape == (5, 2)
    assert found["extra/contact_force_n"].ravel().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert view.images(episode)["observation/images/top"].shape == (5, 8, 8, 3)


def test_a_recording_is_written(episode, tmp_path):
    pytest.importorskip("rerun")
    path = view.write_recording(episode, tmp_path / "deep" / "toy.rrd")
    assert path.read_bytes().startswith(b"RRF2")
    assert path.stat().st_size > 1000


def test_without_rerun_the_extra_is_named(episode, tmp_path, monkeypatch):
    monkeypatch.setattr(view.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"\.\[view\]"):
        view.write_recording(episode, tmp_path / "toy.rrd")


def test_an_episode_is_found_by_its_folder_and_by_its_run(episode, tmp_path):
    store = EpisodeStore(tmp_path / "run/episodes")
    store.write(episode)
    for path in (tmp_path / "run/episodes/toy-3", tmp_path / "run/episodes", tmp_path / "run"):
        assert view.find_episode(path)[1] == "toy-3"
    with pytest.raises(FileNotFoundError, match="toy-3"):
        view.find_episode(tmp_path / "run/episodes/toy-4")


def test_importing_the_module_needs_no_rerun():
    code = "import robot_rl.view, sys; sys.exit('rerun' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
