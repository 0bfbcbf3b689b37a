"""Reading a store while another program removes from it, and folders that are no episodes."""

import importlib
import shutil

import pytest

from data.convert import convert
from data.describe import describe
from data.prune import Retention, apply, plan
from data.store import EpisodeStore
from data.validate import validate


def removing(monkeypatch, store, id_, name):
    """Another program removes an episode just when a file of it is about to be read."""
    module = importlib.import_module("data.episode_folder")
    read = module._read

    def late(folder, path):
        if folder.name == id_ and path == name and id_ in store:
            shutil.rmtree(folder)
        return read(folder, path)

    monkeypatch.setattr(module, "_read", late)


@pytest.mark.parametrize("name", ["zarr.json", "steps/actions/c.0.0.0"])
def test_an_episode_that_is_removed_while_it_is_read_is_gone_and_not_damaged(store, monkeypatch, name):
    removing(monkeypatch, store, "b", name)
    assert [episode.id for episode in store] == ["a", "c"]
    assert store.damages() == {}
    assert "b" not in store


def test_validate_info_and_a_plan_pass_over_what_is_removed_meanwhile(store, tmp_path, monkeypatch):
    for look in (
        lambda one: validate(one.path).findings,
        lambda one: describe(one.path).damaged,
        lambda one: plan(one, Retention(keep=0)).unreadable,
    ):
        copy = tmp_path / "copy"
        shutil.copytree(store.path, copy)
        removing(monkeypatch, EpisodeStore(copy), "b", "zarr.json")
        assert not any("damaged" in str(finding) for finding in look(EpisodeStore(copy)))
        assert EpisodeStore(copy).ids() == ["a", "c"]
        monkeypatch.undo()
        shutil.rmtree(copy)


def test_two_who_make_room_at_once_do_not_disturb_each_other(store, tmp_path):
    convert(store.path, tmp_path / "copy", "zarr")
    made = plan(store, Retention(keep=1))
    store.remove("a")
    assert apply(store, made) == ["b"]
    assert store.ids() == ["c"]


def test_a_folder_that_can_be_no_episode_is_none(store):
    for name in ("lost+found", "a (copy)"):
        (store.path / name).mkdir()
    assert store.ids() == ["a", "b", "c"]
    assert len(list(store)) == 3
    assert "../demos/a" not in store
    assert store.damages() == {}
