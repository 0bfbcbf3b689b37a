import subprocess
import sys

import pytest

from data.errors import DamagedEpisodeError, DatasetError
from data.features import from_array
from data.formats import registry
from data.formats.extras import require
from data.formats.registry import Format, Source, detect, load, open_source
from data.formats.target import new_target
from data.records import equal
from tests.conftest import REPOSITORY
from tests.data.episodes import episode
from tests.data.stores import stored


class Folders(Format):
    name = "folders"
    summary = "every folder"
    looked_for = "a folder"

    def matches(self, path):
        return path.is_dir()

    def read(self, path, **options):
        return Source({}, None, 0, iter(()), ("nothing is in it",))


class EntryPoint:
    def __init__(self, name, value):
        self.name, self.value = name, value


@pytest.fixture
def store(tmp_path):
    given = [episode("one"), episode("two", seed=1)]
    return stored(tmp_path / "store", given, action_spec={"groups": [], "rate_hz": 20.0}).path


def test_every_registered_format_can_be_loaded_under_its_own_name():
    for name in registry.FORMATS:
        made = load(name)
        assert made.name == name
        assert made.summary
        assert made.looked_for


def test_our_store_is_recognised_and_read_whole(store):
    assert detect(store) == "zarr"
    source = open_source(store)
    assert (source.count, source.action_spec, source.notes) == (2, {"groups": [], "rate_hz": 20.0}, ())
    assert source.features["observation.wrench"].shape == (6,)
    assert all(map(equal, source.episodes, [episode("one"), episode("two", seed=1)]))


def test_a_store_written_through_the_format_is_equal(tmp_path):
    wanted = episode("one")
    features = {key: from_array(rows[0], unit="N") for key, rows in wanted.observations.items()}
    assert load("zarr").write([wanted], features, None, tmp_path / "new") == ()
    source = open_source(tmp_path / "new", "zarr")
    assert source.features == features
    assert equal(next(source.episodes), wanted)
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("name", ["zarr", "robomimic", "lerobot"])
def test_nothing_is_written_where_there_is_no_episode(tmp_path, name):
    with pytest.raises(DatasetError, match="no episode"):
        load(name).write([], {}, None, tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_damaged_episode_stops_reading_unless_it_may_be_left_out(store):
    next((store / "one/observations").glob("*/c.0*")).unlink()
    with pytest.raises(DamagedEpisodeError, match="Episode one"):
        list(open_source(store).episodes)
    assert [found.id for found in open_source(store, skip_damaged=True).episodes] == ["two"]


def test_what_is_of_no_known_format_is_told_what_was_looked_for(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(
        DatasetError, match=r"a.txt is of no known format.* zarr: a folder with a zarr.json[^;]*; "
    ):
        detect(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match=r"nothing at .*gone"):
        open_source(tmp_path / "gone", "zarr")


def test_names_that_are_nearly_right_get_a_hint(store):
    with pytest.raises(ValueError, match="did you mean 'zarr'"):
        load("zar")
    with pytest.raises(ValueError, match="did you mean 'skip_damaged'"):
        open_source(store, skip_damage=True)
    with pytest.raises(ValueError, match="cannot be imported"):
        load("data.formats.nowhere:Format")
    with pytest.raises(ValueError, match="no subclass"):
        load("data.records:Episode")


def test_others_register_by_path_or_entry_point(tmp_path, store, monkeypatch, caplog):
    path = f"{__name__}:Folders"
    assert open_source(tmp_path, path).notes == ("nothing is in it",)
    points = [EntryPoint("folders", path), EntryPoint("broken", "nowhere:At")]
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: points)
    assert registry.names()[-2:] == ["folders", "broken"]
    assert detect(tmp_path) == "folders"
    assert "'nowhere:At' cannot be imported" in caplog.text
    with pytest.raises(DatasetError, match="could be zarr or folders; say which"):
        detect(store)


def test_a_format_that_is_only_read_says_so(tmp_path):
    with pytest.raises(DatasetError, match=r"'folders' is only read; written are zarr"):
        Folders().write([], {}, None, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def fill_half(target):
    with new_target(target) as part:
        part.mkdir()
        (part / "half").write_text(str(1 / 0))


def fill_late(target):
    with new_target(target) as part:
        part.write_text("ours")
        target.write_text("theirs")


def test_a_target_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "deep/set"
    with pytest.raises(ZeroDivisionError):
        fill_half(target)
    assert list(target.parent.iterdir()) == []
    with new_target(target) as part:
        part.write_text("whole")
    assert target.read_text() == "whole"
    with pytest.raises(FileExistsError, match="set exists already"), new_target(target):
        pytest.fail("the block must not run")


def killed_while_writing(target, folder):
    script = f"""
import os, signal
from data.formats.target import new_target
with new_target({str(target)!r}) as part:
    if {folder}:
        part.mkdir()
        part = part / "file"
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False, timeout=60)


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path, folder, caplog):
    target = tmp_path / "set[1]"
    killed_while_writing(target, folder)
    killed_while_writing(tmp_path / "other", folder)
    (left,) = tmp_path.glob(".set*")
    with new_target(target) as running, new_target(target.with_name("set")) as longer:
        running.write_text("running")
        longer.write_text("longer")
        assert not left.exists()
        with pytest.raises(ZeroDivisionError):
            fill_half(target)
        assert running.exists()
    assert str(left) in caplog.text
    assert len([entry for entry in tmp_path.iterdir() if entry.name.startswith(".other.")]) == 1


def test_a_target_that_came_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "set"
    with pytest.raises(FileExistsError):
        fill_late(target)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("set", "theirs")]


def test_a_missing_package_names_its_extra():
    assert require("json", "lerobot", "Nothing") is not None
    with pytest.raises(
        ImportError, match=r"Writing needs no_such_package.*pip install 'robot-rl\[lerobot\]'"
    ):
        require("no_such_package", "lerobot", "Writing")
