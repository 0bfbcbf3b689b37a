import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from data.episode_folder import GROUP_FILE, read_facts
from data.errors import DamagedEpisodeError, LockedStoreError, StoreError
from data.manifest import sha256_bytes
from data.records import Outcome, Step, equal
from data.store import EpisodeStore, Partial
from data.zarr_files import group_bytes
from tests.data.episodes import (
    STREAM_FEATURES,
    episode,
    fill,
    fill_streams,
    observation,
    record,
    streaming_episode,
)


def test_episodes_come_back_equal_bit_for_bit(store):
    again = EpisodeStore(store.path)
    assert again.ids() == ["a", "b", "c"]
    assert len(again) == 3
    for seed, found in enumerate(again):
        assert equal(found, episode("abc"[seed], steps=7 + seed, seed=seed))
    summary = again.summary("b")
    assert (summary.steps, summary.outcome, summary.seed) == (8, Outcome.SUCCESS, 1)
    assert again.damages() == {}


def test_the_zarr_package_reads_the_same_arrays_without_a_warning(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(store.path, mode="r")
        assert sorted(key for key, _ in group.members()) == ["a", "b", "c"]
        one, want = group["b"], store.read("b")
        np.testing.assert_array_equal(one["steps/actions"][:, 0], want.action_base)
        np.testing.assert_array_equal(
            one["observations/observation.images.wrist"][:], want.observations["observation.images.wrist"]
        )
        np.testing.assert_array_equal(one["steps/labels"][:, 5], want.terminated)
        assert one.attrs["columns"]["steps/actions"][0] == "action_base"
        assert one.attrs["columns"]["steps/labels"][5] == "terminated"
        assert one.attrs["task"] == "insert the peg"


def test_arrays_larger_than_a_chunk_come_back_equal(tmp_path, monkeypatch):
    monkeypatch.setattr("data.zarr_files._CHUNK_BYTES", 500)
    store = EpisodeStore(tmp_path / "s")
    store.write(episode())
    record(store, "two", 13).finish("success")
    assert len(list((store.path / "one/observations/observation.tactile.left").glob("c.*"))) == 7
    assert equal(store.read("one"), episode())
    np.testing.assert_array_equal(store.read("two").action, episode().action)
    np.testing.assert_array_equal(
        zarr.open_group(store.path, mode="r")["two/observations/observation.tactile.left"][:],
        episode().observations["observation.tactile.left"],
    )


def test_a_recorded_episode_equals_the_one_that_was_built(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    facts = {"robot": "arm", "operator": "ada", "base_version": "b1", "refiner_version": "r2"}
    metadata = {"hole_error_m": np.array([0.001, -0.002])}
    recorder = store.recorder(
        id="one", task="insert the peg", seed=0, metadata=metadata, flush_every=5, **facts
    )
    fill(recorder, 13, np.random.default_rng(0))
    assert recorder.finish(Outcome.SUCCESS) == "one"
    assert equal(store.read("one"), episode())
    assert store.partials() == []
    assert [entry.name for entry in store.path.iterdir() if entry.name.startswith(".")] == []


def test_streams_and_events_come_back_equal_bit_for_bit(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    whole = streaming_episode()
    store.write(whole)
    found = store.read("streams")
    assert equal(found, whole)
    assert found.streams["observation.wrench"].feature == STREAM_FEATURES["observation.wrench"]
    assert [str(event.kind) for event in found.events] == ["pause", "resume"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(store.path / "streams", mode="r")
        np.testing.assert_array_equal(
            group["streams/observation.wrench/values"][:], whole.streams["observation.wrench"].values
        )
        assert group.attrs["events"][0]["because"] == "tea"


def test_recorded_streams_and_events_equal_those_that_were_built(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    facts = {"id": "streams", "task": "insert the peg", "seed": 0, "stream_features": STREAM_FEATURES}
    recorder = store.recorder(flush_every=5, **facts)
    fill(recorder, 13, np.random.default_rng(0))
    fill_streams(recorder, 13, np.random.default_rng(1000))
    recorder.finish(Outcome.SUCCESS)
    assert equal(store.read("streams"), streaming_episode())


def as_version_1(folder):
    """Rewrite an episode's attributes as the first release wrote them."""
    facts = {
        name: value for name, value in read_facts(folder).items() if name not in ("events", "stream_features")
    }
    facts["version"] = 1
    digest = sha256_bytes(json.dumps(facts, sort_keys=True, allow_nan=False).encode())
    (folder / GROUP_FILE).write_bytes(group_bytes({**facts, "sha256": digest}))


def test_episodes_of_the_first_format_version_are_read(store):
    as_version_1(store.path / "b")
    assert equal(store.read("b"), episode("b", steps=8, seed=1))
    assert store.summary("b").steps == 8


FILES = [
    "zarr.json",
    "steps/actions/c.0.0.0",
    "steps/actions/zarr.json",
    "observations/observation.images.wrist/c.0.0.0.0",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["delete", "truncate", "flip", "empty"])
def test_a_damaged_file_is_reported_with_its_episode_and_the_others_stay_readable(
    store, name, damage, caplog
):
    file = store.path / "b" / name
    content = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2 if damage == "truncate" else 0])
    with pytest.raises(DamagedEpisodeError, match=r"Episode b is damaged: .*" + name.split("/")[-1]):
        store.read("b")
    with caplog.at_level(logging.ERROR):
        assert [found.id for found in store] == ["a", "c"]
    assert "Episode b is damaged" in caplog.text
    assert list(store.damages()) == ["b"]


def test_a_chunk_that_vanished_is_never_zeros_even_to_zarr(store):
    (store.path / "a/steps/actions/c.0.0.0").unlink()
    assert np.isnan(zarr.open_group(store.path, mode="r")["a/steps/actions"][:]).all()


def test_a_list_of_files_that_leads_outside_is_refused(store):
    file = store.path / "a/zarr.json"
    file.write_text(file.read_text().replace("steps/actions/c.0.0.0", "../c/zarr.json"))
    with pytest.raises(DamagedEpisodeError, match="changed after"):
        store.read("a")


def test_an_episode_is_written_once(store):
    with pytest.raises(StoreError, match="Episode a exists already"):
        store.write(episode("a"))
    with pytest.raises(StoreError, match="Episode a exists already"):
        store.recorder(id="a", task="t")
    assert equal(store.read("a"), episode("a", steps=7))
    store.write(episode("d"))


@pytest.mark.parametrize("id_", ["nobody", "", "../demos", ".recording", "a/steps"])
def test_unknown_episodes_are_refused(store, id_):
    with pytest.raises((KeyError, ValueError), match=r"No episode|folder"):
        store.read(id_)


def test_reading_where_nothing_is_tells_what_to_do(tmp_path):
    store = EpisodeStore(tmp_path / "nowhere")
    assert not store.exists
    assert len(store) == 0
    with pytest.raises(StoreError, match=r"no episode store at .*nowhere.*collect"):
        store.ids()
    assert not (tmp_path / "nowhere").exists()


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreError, match="other files"):
        EpisodeStore(tmp_path).write(episode())
    zarr.create_group(tmp_path / "other", zarr_format=3)
    with pytest.raises(StoreError, match="no episode store"):
        EpisodeStore(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "thesis.tex"]


def test_a_second_writer_is_told_who_writes(store):
    recorder = record(store, "running", 3)
    other = EpisodeStore(store.path)
    with pytest.raises(LockedStoreError, match=r"Episode d cannot be written.*\['running'\]"):
        other.write(episode("d"))
    with pytest.raises(LockedStoreError, match=r"Episode e cannot.*running"):
        other.recorder(id="e", task="t")
    with pytest.raises(LockedStoreError, match="running"):
        other.recover("running")
    assert other.partials() == [Partial("running", 0, active=True)]
    assert equal(other.read("a"), episode("a", steps=7))
    store.write(episode("f"))
    recorder.finish()
    other.write(episode("d"))
    assert other.ids() == ["a", "b", "c", "d", "f", "running"]


def test_names_that_lead_outside_are_refused(store):
    recorder = store.recorder(id="d", task="t")
    with pytest.raises(ValueError, match="cannot name a stored array"):
        recorder.start({"../../evil": np.zeros(1)})
    recorder.close()
    with pytest.raises(ValueError, match="folder"):
        store.recorder(id="../evil", task="t")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    store = EpisodeStore(tmp_path / "file/store")
    with pytest.raises(StoreError, match=r"Episode one cannot be written: Not a directory.*file/store"):
        store.write(episode())


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write to read-only folders")
def test_a_read_only_store_is_read_and_not_written(store):
    store.path.chmod(0o500)
    try:
        assert len(list(EpisodeStore(store.path))) == 3
        with pytest.raises(StoreError, match="Episode d cannot be written: Permission denied"):
            store.write(episode("d"))
    finally:
        store.path.chmod(0o700)


@pytest.fixture
def full_disk():
    """No file may grow beyond 2 kB: the operating system's own error, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_when_the_disk_is_full_the_episode_is_named_and_nothing_half_written_counts(store, full_disk):
    with pytest.raises(StoreError, match=r"Episode d cannot be written: File too large.*Make room"):
        store.write(episode("d", steps=200))
    assert store.ids() == ["a", "b", "c"]
    assert store.partials() == []
    full_disk()
    store.write(episode("d", steps=200))
    assert len(store) == 4


def test_when_the_disk_fills_while_recording_the_steps_before_are_kept(store):
    recorder = record(store, "d", 20)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(
            StoreError, match=r"Episode d: what came from step 20 on cannot be written \(File too large\)"
        ):
            _continue(recorder, 30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.partials() == [Partial("d", 20, active=False)]
    assert len(store.recover("d")) == 20


def _continue(recorder, steps):
    rng = np.random.default_rng(9)
    for t in range(steps):
        step = Step(action=rng.random(3), wall_time=0.0, monotonic_time=float(t))
        recorder.append(step, observation(rng), {"contact_force_n": 0.0, "residual": np.zeros(3)})


WRITER = """
import itertools, sys
import numpy as np
from data.store import EpisodeStore
from tests.data.episodes import fill
store = EpisodeStore(sys.argv[1])
for number in itertools.count():
    recorder = store.recorder(id=f"n{number:04d}", task="t", seed=number, flush_every=5)
    fill(recorder, 23, np.random.default_rng(number))
    recorder.finish("success")
    assert "torch" not in sys.modules
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_killing_the_writer_loses_no_committed_episode_and_mixes_none_up(tmp_path, lines):
    path = tmp_path / "s"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with writer:
        told = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.kill()
    store = EpisodeStore(path)
    partials = store.partials()
    assert {f"n{number:04d}" for number in told} <= set(store.ids())
    assert store.damages() == {}
    for found in store:
        whole = episode(found.id, steps=23, seed=int(found.id[1:]))
        np.testing.assert_array_equal(found.action, whole.action)
        assert found.outcome is Outcome.SUCCESS
    for partial in partials:
        assert not partial.active
        whole = episode(partial.id, steps=23, seed=int(partial.id[1:]))
        if partial.steps:
            found = store.recover(partial.id)
            np.testing.assert_array_equal(found.action, whole.action[: partial.steps])
            np.testing.assert_array_equal(
                found.observations["observation.state"],
                whole.observations["observation.state"][: partial.steps + 1],
            )
        else:
            store.discard(partial.id)
    assert store.partials() == []
    record(store, "after", 3).finish()


def test_a_store_moved_elsewhere_is_the_same_store(store, tmp_path):
    shutil.move(store.path, tmp_path / "elsewhere")
    assert [found.id for found in EpisodeStore(tmp_path / "elsewhere")] == ["a", "b", "c"]


def test_a_durable_store_waits_for_the_disk_and_holds_the_same(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def noted(handle):
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    store = EpisodeStore(tmp_path / "s", durable=True)
    store.write(episode())
    record(store, "two", 13).finish("success")
    assert equal(store.read("one"), episode())
    np.testing.assert_array_equal(store.read("two").action, episode().action)
    names = {Path(name).name for name in synced}
    assert {
        "journal.jsonl",
        "segment-000000.npz",
        "pictures-000",
        "c.0.0.0.0",
        "zarr.json",
        "s",
        "two",
    } <= names
    for file in (store.path / "two").rglob("*"):
        moved = file.relative_to(store.path / "two")
        assert str(store.path / ".recording/two/episode/two" / moved) in synced
    count = len(synced)
    EpisodeStore(tmp_path / "s").write(episode("three"))
    assert len(synced) == count


@pytest.mark.parametrize("write", ["write", "record"])
def test_an_id_that_is_a_files_name_there_is_refused_at_once(store, write):
    (store.path / "README").write_text("notes")
    for id_ in ("zarr.json", "README"):
        with pytest.raises(
            StoreError, match=f"Episode {id_} cannot be put into .* holds a file of that name"
        ):
            store.write(episode(id_)) if write == "write" else store.recorder(id=id_, task="t")
    assert store.partials() == []


def test_a_sensor_of_the_name_of_zarrs_own_file_is_refused_at_once(store):
    recorder = store.recorder(id="k", task="t")
    with recorder, pytest.raises(ValueError, match=r"'zarr.json' cannot name a stored array"):
        recorder.start({"zarr.json": np.zeros(3)})


def test_a_seed_that_numpy_drew_is_stored(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    store.write(replace(episode(), seed=np.int64(7)))
    assert store.read("one").seed == 7
    assert type(store.read("one").seed) is int


@pytest.mark.parametrize("error", [KeyboardInterrupt, TypeError, OSError(28, "No space left on device")])
def test_a_write_that_breaks_off_leaves_nothing(store, monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr("data.folder_writer.group_bytes", broken)
    with pytest.raises((KeyboardInterrupt, TypeError, StoreError)):
        store.write(episode("new"))
    assert store.partials() == []
    assert not list(store.path.glob(".recording/*"))
