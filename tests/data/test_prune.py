import os
import shutil

import pytest

from data.convert import convert
from data.errors import DamagedEpisodeError, StoreError
from data.prune import Retention, apply, plan
from data.receipts import add_receipt, content_hash, proof, receipts
from data.records import equal
from data.store import EpisodeStore
from tests.data.stores import robots_store
from tests.data.validate import robot

DAY = 86400.0
NOW = 2e9


@pytest.fixture
def store(tmp_path):
    """Five episodes, e-0 the oldest, a day between each; the odd ones failed."""
    made = robots_store(tmp_path / "s")
    for i in range(5):
        outcome = "failure" if i % 2 else "success"
        made.write(robot.episode(f"e-{i}", steps=5, seed=i, streams=False, outcome=outcome))
        moment = NOW - (5 - i) * DAY
        os.utime(made.path / f"e-{i}" / "zarr.json", (moment, moment))
    return made


def export(store, target):
    return convert(store.path, target, "zarr")


def ids(candidates):
    return [candidate.id for candidate in candidates]


def test_nothing_is_removed_that_exists_nowhere_else(store):
    for rule in (Retention(keep=0), Retention(max_gb=0.0), Retention(older_than_days=0)):
        made = plan(store, rule, now=NOW)
        assert made.remove == ()
        assert len(made.protected) == 5
        assert apply(store, made) == []
    assert len(store) == 5


def test_a_plan_removes_nothing_and_applying_it_removes_the_oldest(store, tmp_path):
    assert export(store, tmp_path / "copy").receipts == 5
    made = plan(store, Retention(keep=2), now=NOW)
    assert ids(made.remove) == ["e-0", "e-1", "e-2"]
    assert len(store) == 5
    seen = []
    assert apply(store, made, progress=seen.append) == ["e-0", "e-1", "e-2"] == seen
    assert store.ids() == ["e-3", "e-4"]
    assert [receipt.target for receipt in receipts(store, "e-0")] == [str(tmp_path / "copy")]


def test_each_limit_and_the_outcomes(store, tmp_path):
    export(store, tmp_path / "copy")
    made = plan(store, Retention(older_than_days=2.5), now=NOW)
    assert (made.remove[0].id, made.remove[0].because) == ("e-0", "5.0 days old")
    assert ids(made.remove) == ["e-0", "e-1", "e-2"]
    assert ids(plan(store, Retention(keep=0, outcomes=("failure",)), now=NOW).remove) == ["e-1", "e-3"]
    size = made.size / 5
    found = plan(store, Retention(max_gb=3.5 * size / 1e9), now=NOW)
    assert ids(found.remove) == ["e-0", "e-1"]
    assert found.freed == pytest.approx(2 * size, rel=0.05)
    assert ids(plan(store, Retention(max_gb=1.0), now=NOW).remove) == []


def test_room_is_made_by_what_can_go_when_the_oldest_cannot(store):
    for id_ in ("e-2", "e-3"):
        receipt(store, id_)
    made = plan(store, Retention(max_gb=0.0), now=NOW)
    assert ids(made.remove) == ["e-2", "e-3"]
    assert ids(made.protected) == ["e-0", "e-1", "e-4"]


def receipt(store, id_, kind="uploaded", target="s3://there", **changes):
    content = changes.get("content", content_hash(store, id_))
    return add_receipt(store, id_, kind=kind, target=target, format="zarr", content=content)


def test_a_receipt_for_other_content_protects(store, tmp_path):
    export(store, tmp_path / "copy")
    store.remove("e-0")
    store.write(robot.episode("e-0", steps=6, seed=99, streams=False))
    assert proof(store, "e-0") is None
    made = plan(store, Retention(keep=0), now=NOW)
    assert "e-0" in ids(made.protected)


def test_an_export_that_was_deleted_protects_and_an_upload_is_believed(store, tmp_path):
    export(store, tmp_path / "copy")
    receipt(store, "e-1")
    shutil.rmtree(tmp_path / "copy")
    made = plan(store, Retention(keep=0), now=NOW)
    assert ids(made.remove) == ["e-1"]


@pytest.mark.parametrize("form", ["zarr", "robomimic"])
def test_something_else_in_the_place_of_an_export_protects(store, tmp_path, form):
    other = robots_store(tmp_path / "other")
    other.write(robot.episode("e-0", steps=5, seed=7, streams=False))
    for source in (store, other):
        convert(source.path, tmp_path / "copy", form)
        if source is store:
            assert len(plan(store, Retention(keep=0), now=NOW).remove) == 5
            (tmp_path / "copy").rename(tmp_path / "moved")
    assert plan(store, Retention(keep=0), now=NOW).remove == ()


def test_an_episode_that_was_removed_from_the_copy_stays_here(store, tmp_path):
    export(store, tmp_path / "copy")
    EpisodeStore(tmp_path / "copy").remove("e-1")
    made = plan(store, Retention(keep=0), now=NOW)
    assert ids(made.protected) == ["e-1"]
    assert ids(made.remove) == ["e-0", "e-2", "e-3", "e-4"]


def test_receipts_are_checked_again_when_the_plan_is_applied(store, tmp_path):
    export(store, tmp_path / "copy")
    made = plan(store, Retention(keep=0), now=NOW)
    shutil.rmtree(tmp_path / "copy")
    assert apply(store, made) == []
    assert len(store) == 5


def test_damaged_episodes_and_broken_receipts_protect_and_are_said(store, tmp_path):
    export(store, tmp_path / "copy")
    (store.path / "e-0/zarr.json").write_text("{}")
    (store.path / ".receipts/e-1.json").write_text("[1]")
    made = plan(store, Retention(keep=0), now=NOW)
    assert ids(made.remove) == ["e-2", "e-3", "e-4"]
    assert set(made.unreadable) == {"e-0", "e-1"}
    assert made.count == 5
    with pytest.raises(StoreError, match="no file of receipts"):
        receipts(store, "e-1")


def test_impossible_rules_are_refused():
    with pytest.raises(ValueError, match="No limit is given"):
        Retention()
    with pytest.raises(ValueError, match="keep is -1"):
        Retention(keep=-1)
    with pytest.raises(ValueError, match="'won' is not a valid"):
        Retention(keep=1, outcomes=("won",))
    with pytest.raises(ValueError, match="max_gb is nan"):
        Retention(max_gb=float("nan"))


# --- conversion and its receipts


def test_a_conversion_is_equal_counted_and_marked(store, tmp_path):
    seen = []
    done = convert(store.path, tmp_path / "copy", "zarr", progress=seen.append)
    copy = EpisodeStore(tmp_path / "copy")
    assert list(done.ids) == store.ids() == seen
    assert all(equal(copy.read(id_), store.read(id_)) for id_ in store.ids())
    kept = proof(store, "e-3")
    assert (kept.kind, kept.format, kept.target) == ("exported", "zarr", str(tmp_path / "copy"))


def test_a_second_export_to_the_same_place_replaces_its_receipt(store):
    receipt(store, "e-0", content="old")
    receipt(store, "e-0")
    receipt(store, "e-0", target="s3://elsewhere")
    assert [one.target for one in receipts(store, "e-0")] == ["s3://there", "s3://elsewhere"]


def test_a_receipt_says_what_the_copy_does_not_keep(store, tmp_path, monkeypatch):
    monkeypatch.setattr("data.formats.zarr_store.ZarrStore.write", lambda *given, **options: _lossy(*given))
    convert(store.path, tmp_path / "copy", "zarr")
    assert receipts(store, "e-0")[0].lost == ("Colours are gone.",)


def _lossy(writer, episodes, features, action_spec, path):
    list(episodes)
    path.write_text("grey")
    return ("Colours are gone.",)


def test_a_failed_conversion_leaves_no_target_and_no_receipt(store, tmp_path):
    next((store.path / "e-3/steps").rglob("c.0*")).unlink()
    with pytest.raises(DamagedEpisodeError, match="e-3"):
        convert(store.path, tmp_path / "copy", "zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    assert all(receipts(store, id_) == [] for id_ in store.ids())
    done = convert(store.path, tmp_path / "copy", "zarr", read={"skip_damaged": True})
    assert "e-3" not in done.ids
    assert receipts(store, "e-3") == []


def test_what_is_there_is_never_written_over(store, tmp_path):
    (tmp_path / "copy").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        convert(store.path, tmp_path / "copy", "zarr")
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "nothing", tmp_path / "new", "zarr")
    with pytest.raises(ValueError, match="did you mean 'zarr'"):
        convert(store.path, tmp_path / "new", "zar")


def test_receipts_refuse_unknown_kinds_and_episodes(store):
    with pytest.raises(ValueError, match="allowed: exported, uploaded"):
        receipt(store, "e-0", kind="lost")
    with pytest.raises(KeyError):
        content_hash(store, "e-9")
