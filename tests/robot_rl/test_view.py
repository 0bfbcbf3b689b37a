import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from data.records import EpisodeBuilder, Step
from robot_rl import view
from robot_rl.cli import main
from tests.data import episodes
from tests.data.stores import stored
from tests.data.validate import robot
from tests.robot_rl.countdown import save_countdown


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


@pytest.fixture
def store(tmp_path):
    return stored(tmp_path / "demos", [episodes.episode("a", steps=7), episodes.episode("b", steps=7)])


def test_every_sensor_and_action_becomes_a_series_and_empty_columns_do_not(episode):
    found = dict(view.series(episode))
    assert set(found) == {"observation/state", "action/executed", "extra/contact_force_n", "reward", "gain"}
    assert found["observation/state"].shape == (5, 2)
    assert found["extra/contact_force_n"].ravel().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert view.images(episode)["observation/images/top"].shape == (5, 8, 8, 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_with_their_channels_first_are_turned(episode, channels):
    rows = np.arange(5 * channels * 6 * 7, dtype=np.uint8).reshape(5, channels, 6, 7)
    turned = replace(episode, observations={"observation.images.top": rows})
    found = view.images(turned)["observation/images/top"]
    np.testing.assert_array_equal(found, np.moveaxis(rows, 1, -1))


def test_a_recording_is_written(episode, tmp_path):
    pytest.importorskip("rerun")
    path = view.write_recording(episode, tmp_path / "deep" / "toy.rrd")
    assert path.read_bytes().startswith(b"RRF2")
    assert path.stat().st_size > 1000


def entities(path):
    """Entity paths and time axes of a recording, by rerun's own reader."""
    from rerun.chunk import RrdReader

    found = {}
    for chunk in RrdReader(path).stream().to_chunks():
        found.setdefault(chunk.entity_path.strip("/"), set()).update(chunk.timeline_names)
    return found


def test_a_recording_holds_every_sensor_who_acted_events_streams_and_values(tmp_path):
    pytest.importorskip("rerun")
    episode = robot.episode(steps=12, events=robot.pause(100.1, 100.2))
    pad = np.random.default_rng(0).random((13, 4, 3, 3)).astype(np.float32)
    episode = replace(
        episode,
        observations={**episode.observations, "observation.tactile.left": pad},
        source=np.repeat(["policy", "human"], 6),
    )
    path = view.write_recording(episode, tmp_path / "a.rrd", {"q": np.arange(12.0)})
    found = entities(path)
    assert {
        "episode",
        "observation/state",
        "observation/wrench",
        "observation/images/top",
        "observation/tactile/left",
        "observation/tactile/left/sum",
        "action/policy",
        "action/executed",
        "segments/policy",
        "segments/human",
        "streams/observation/force",
        "events",
        "values/q",
    } <= set(found)
    assert found["streams/observation/force"] == {"time"}
    assert found["action/executed"] >= {"step", "time"}
    assert found["events"] >= {"step", "time"}


def test_the_command_draws_what_a_critic_says(store, tmp_path, capsys):
    pytest.importorskip("rerun")
    critic, out = save_countdown(tmp_path / "critic"), tmp_path / "a.rrd"
    words = ["view", str(store.path), "--id", "b", "--critic", str(critic), "--out", str(out)]
    assert main(words) == 0
    assert {"values/executed/left", "values/base/left"} <= set(entities(out))
    assert main([*words[:-1], str(tmp_path / "b.rrd"), "--critic", str(store.path)]) == 1
    assert "holds no critic" in capsys.readouterr().err
    assert not (tmp_path / "b.rrd").exists()


def test_streams_keep_their_own_stamps(tmp_path):
    pytest.importorskip("rerun")
    from rerun.chunk import RrdReader

    episode = robot.episode(steps=12)
    path = view.write_recording(episode, tmp_path / "a.rrd")
    chunks = [c for c in RrdReader(path).stream().to_chunks() if "force" in c.entity_path]
    shown = np.concatenate([c.to_record_batch()["time"].to_numpy().astype("int64") for c in chunks]) / 1e9
    stamps = episode.streams["observation.force"].times - episode.monotonic_time[0]
    assert np.sort(shown) == pytest.approx(stamps, abs=1e-6)


def test_an_episode_without_times_is_shown_over_its_steps(tmp_path):
    pytest.importorskip("rerun")
    nothing = np.full(5, np.nan)
    episode = robot.episode(steps=5, streams=False, monotonic_time=nothing, reward=nothing)
    found = entities(view.write_recording(episode, tmp_path / "a.rrd"))
    assert "time" not in found["action/executed"]
    assert "reward" not in found


def test_values_of_another_length_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"values\['q'\] has shape \(3,\); episode a-0 needs \(5,\)"):
        view.write_recording(robot.episode(steps=5), tmp_path / "a.rrd", {"q": np.zeros(3)})
    assert not list(tmp_path.iterdir())


def test_touch_images_show_pressure_shear_and_what_is_missing():
    rows = np.zeros((2, 2, 1, 3))
    rows[0, 0, 0] = [0, 0, 4.0]
    rows[1, 0, 0] = [1.0, 0, 2.0]
    rows[1, 1, 0, 2] = np.nan
    shown = view.touch_images(rows, pixels=2)
    assert shown.shape == (2, 4, 2, 3)
    assert shown[0, 0, 0].tolist() == [255, 255, 255]
    assert shown[1, 1, 1].tolist() == [255, 128, 128]
    assert shown[1, 2, 0].tolist() == [255, 0, 255]
    assert shown[0, 2, 0].tolist() == [0, 0, 0]


def test_without_rerun_the_extra_is_named(episode, tmp_path, monkeypatch):
    monkeypatch.setattr(view.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"\.\[view\]"):
        view.write_recording(episode, tmp_path / "toy.rrd")


def test_importing_the_module_needs_no_rerun():
    code = "import robot_rl.view, sys; sys.exit('rerun' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
