from dataclasses import replace

import pytest

from data.formats.registry import Source
from data.store import EpisodeStore
from robot_rl.find_episode import find_episode, read_episode
from tests.data.validate import robot


def test_an_episode_is_found_by_its_folder_and_by_its_run(tmp_path):
    episode = robot.episode("toy-3", steps=3)
    store = EpisodeStore(tmp_path / "run/episodes")
    store.write(episode)
    for path in (tmp_path / "run/episodes/toy-3", tmp_path / "run/episodes", tmp_path / "run"):
        assert find_episode(path)[1] == "toy-3"
    with pytest.raises(FileNotFoundError, match="toy-3"):
        find_episode(tmp_path / "run/episodes/toy-4")


def test_an_episode_is_read_by_id_and_from_other_formats(tmp_path, monkeypatch):
    episode = robot.episode("toy-3", steps=3)
    store = EpisodeStore(tmp_path / "s")
    store.write(episode)
    store.write(replace(episode, id="toy-4"))
    assert read_episode(tmp_path / "s").id == "toy-3"
    assert read_episode(tmp_path / "s", "toy-4").id == "toy-4"
    with pytest.raises(FileNotFoundError, match="did you mean 'toy-4'"):
        read_episode(tmp_path / "s", "toy4")
    (tmp_path / "other").mkdir()
    source = Source({}, None, None, iter([episode, replace(episode, id="toy-9")]))
    monkeypatch.setattr("robot_rl.find_episode.open_source", lambda path, form: source)
    assert read_episode(tmp_path / "other", "toy-9").id == "toy-9"
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_episode(tmp_path / "nothing")
