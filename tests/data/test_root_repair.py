"""The file of a store is made again from what its episodes repeat."""

import fcntl

import pytest

from data.episode_folder import GROUP_FILE
from data.errors import LockedStoreError, StoreError
from data.features import Feature, from_array
from data.root_repair import needs_repair, repair_root
from data.store import EpisodeStore
from robot_rl.cli import main
from tests.data.episodes import episode
from tests.data.stores import stored

FEATURES = {key: from_array(rows[0]) for key, rows in episode().observations.items()}
FEATURES["observation.state"] = Feature((5,), "float32", "rad", tuple("abcde"))
SPEC = {"rate_hz": 20.0}


@pytest.fixture
def declared(tmp_path):
    return stored(tmp_path / "s", [episode("a"), episode("b", seed=1)], features=FEATURES, action_spec=SPEC)


def damage(store, how):
    file = store.path / GROUP_FILE
    if how == "deleted":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[:40] if how == "cut" else content.replace(b"rad", b"rae"))


@pytest.mark.parametrize("how", ["deleted", "cut", "flipped"])
def test_a_lost_or_damaged_file_is_made_again_as_it_was(declared, how):
    file = declared.path / GROUP_FILE
    before = file.read_bytes()
    assert not needs_repair(declared.path)
    assert repair_root(declared.path) == ()
    damage(declared, how)
    broken = file.read_bytes() if file.exists() else None
    with pytest.raises(StoreError, match="data recover"):
        EpisodeStore(declared.path).ids()
    with pytest.raises(StoreError, match="data recover"):
        EpisodeStore(declared.path).write(episode("c"))
    assert needs_repair(declared.path)
    (note,) = repair_root(declared.path)
    assert "made again from 2 episodes" in note
    assert file.read_bytes() == before
    kept = [one.read_bytes() for one in declared.path.glob(".zarr.json.damaged-*")]
    assert kept == ([] if broken is None else [broken])
    again = EpisodeStore(declared.path, features=FEATURES, action_spec=SPEC)
    again.write(episode("c"))
    assert again.ids() == ["a", "b", "c"]


def test_what_the_episodes_do_not_agree_on_is_told_and_not_made_up(declared, tmp_path):
    other = stored(tmp_path / "o", [episode("c"), episode("d")], action_spec=SPEC)
    (other.path / "c").rename(declared.path / "c")
    (other.path / "d").rename(declared.path / "d")
    (declared.path / "d" / GROUP_FILE).write_text("{}")
    damage(declared, "deleted")
    _, note, left = repair_root(declared.path)
    assert note.startswith("features could not be restored: episodes a and c differ.")
    assert left.startswith("Episode d is damaged too")
    found = EpisodeStore(declared.path)
    assert (found._root.declared("features"), found.action_spec) == (None, SPEC)


def test_other_folders_are_no_store_to_be_repaired(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/zarr.json").write_text("{}")
    assert not needs_repair(tmp_path)
    with pytest.raises(StoreError, match="no episode store"):
        repair_root(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_nothing_is_repaired_under_a_recorders_hands(declared, monkeypatch):
    damage(declared, "flipped")
    monkeypatch.setattr("data.root_repair._WAIT_S", 0.0)
    with (declared.path / GROUP_FILE).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockedStoreError, match="is being written to"):
            repair_root(declared.path)


@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_data_recover_repairs_and_says_so(declared, how, capsys):
    damage(declared, how)
    assert main(["data", "recover", str(declared.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "was made again from 2 episodes" in said
    assert "every recording was finished" in said
    assert EpisodeStore(declared.path).features == FEATURES
