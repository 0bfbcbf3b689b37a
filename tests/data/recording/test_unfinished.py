"""Recordings that are not finished, or not as they should be."""

import fcntl
import os
import shutil

import numpy as np
import pytest

from data.errors import LockedStoreError, StoreError
from data.features import Feature
from data.records import Chunk, Outcome, Step
from data.store import EpisodeStore, Partial
from tests.data.episodes import die, episode, fill_streams, observation, record


def test_an_unfinished_recording_is_reported_recovered_or_discarded(store):
    with pytest.raises(ZeroDivisionError), record(store, "torn", 50) as recorder:
        recorder.metadata["note"] = 1 / 0
    assert store.partials() == [Partial("torn", 50, active=False)]
    assert "torn" not in store
    with pytest.raises(StoreError, match="torn holds 50 steps; recover or discard"):
        store.recorder(id="torn", task="t")
    found = store.recover("torn")
    whole = episode("torn", steps=50)
    assert (len(found), found.outcome, found.metadata["recovered"]) == (50, Outcome.UNKNOWN, True)
    np.testing.assert_array_equal(found.action, whole.action)
    for key, rows in found.observations.items():
        np.testing.assert_array_equal(rows, whole.observations[key])
    assert store.partials() == []


def test_what_ends_a_recording_is_said(store):
    die(record(store, "d", 70))
    folder = store.path / ".recording/d"

    def because():
        (found,) = store.partials()
        return found.steps, found.because

    assert because() == (60, "its process ended before it was finished")
    pictures = folder / "pictures-000"
    whole = pictures.read_bytes()
    pictures.write_bytes(whole[: len(whole) * 5 // 7])
    assert because() == (40, "pictures-000 is missing or too short")
    pictures.write_bytes(whole)
    (folder / "segment-000001.npz").unlink()
    assert because() == (20, "segment-000001.npz is missing or was changed")
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"segment-000000", b"segment-000009"))
    assert because() == (0, "line 2 of its journal is damaged")
    journal.unlink()
    assert because() == (0, "its journal cannot be read (No such file or directory)")


def test_a_recording_can_be_made_again(store):
    die(record(store, "d", 30))
    store.discard("d")
    record(store, "d", 5).finish("failure")
    again = record(store, "e", 30)
    again.discard()
    record(store, "e", 6).finish("failure")
    assert [store.summary(id_).steps for id_ in store.ids()] == [7, 8, 9, 5, 6]
    with pytest.raises(KeyError, match="No unfinished recording 'e'"):
        store.discard("e")


def test_a_damaged_piece_of_a_recording_ends_what_is_recovered(store):
    die(record(store, "d", 70))
    piece = store.path / ".recording/d/segment-000001.npz"
    content = bytearray(piece.read_bytes())
    content[-200] ^= 1
    piece.write_bytes(content)
    assert len(store.recover("d")) == 20


def test_a_journal_line_that_was_cut_off_does_not_count(store):
    die(record(store, "d", 50))
    journal = store.path / ".recording/d/journal.jsonl"
    journal.write_text(journal.read_text()[:-10])
    assert store.partials() == [Partial("d", 20, active=False)]


@pytest.mark.parametrize("broken", [b"\xff", b"{}", b"[1]", b"null", b"{"])
def test_a_damaged_journal_line_ends_what_is_recovered_and_no_other_is_lost(store, broken):
    die(record(store, "d", 70))
    journal = store.path / ".recording/d/journal.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[2] = broken
    journal.write_bytes(b"\n".join(lines))
    assert store.partials() == [Partial("d", 20, active=False)]
    assert len(store.recover("d")) == 20


def test_a_digit_that_flipped_in_the_journal_ends_what_is_recovered(store):
    die(record(store, "d", 70))
    journal = store.path / ".recording/d/journal.jsonl"
    content = journal.read_bytes()
    assert content.count(b'"steps": 40') == 1
    journal.write_bytes(content.replace(b'"steps": 40', b'"steps": 48'))
    assert store.partials() == [Partial("d", 20, active=False)]
    assert len(store.recover("d")) == 20


def without_checksums(journal, change=lambda text: text):
    lines = journal.read_text().splitlines()
    journal.write_text(change("".join(line.partition("\t")[0] + "\n" for line in lines)))


def test_a_journal_of_an_earlier_release_has_no_checksums_and_is_recovered(store):
    die(record(store, "d", 70))
    without_checksums(store.path / ".recording/d/journal.jsonl")
    assert len(store.recover("d")) == 60


def test_a_recording_stays_when_the_episode_made_of_it_cannot_be_read(store):
    die(record(store, "d", 70))
    journal = store.path / ".recording/d/journal.jsonl"
    without_checksums(journal, lambda text: text.replace('"steps": 60', '"steps": 61'))
    with pytest.raises(StoreError, match=r"Recording d stays as it was: .*says 61 steps, its arrays hold 60"):
        store.recover("d")
    assert "d" not in store
    assert store.partials() == [Partial("d", 61, active=False)]
    journal.write_text(journal.read_text().replace('"steps": 61', '"steps": 60'))
    assert len(store.recover("d")) == 60


@pytest.mark.parametrize("again", ["write", "recorder", "open"])
def test_what_a_killed_removal_left_goes_with_the_next_one_who_writes(store, again):
    (store.path / "a").rename(store.path / ".removed-a")
    if again == "write":
        store.write(episode("f"))
    elif again == "recorder":
        store.recorder(id="f", task="t").close()
    else:
        EpisodeStore(store.path).remove("b")
    assert not list(store.path.glob(".removed-*"))
    assert {"a", "b", "c"} - set(store.ids()) == ({"a", "b"} if again == "open" else {"a"})


@pytest.mark.parametrize("declared", ["observation.images.gel", "observation.wrench"])
def test_recorded_streams_are_held_to_what_is_declared_of_them(store, declared):
    forms = {
        "observation.wrench": Feature((6,), "float32", "N"),
        "observation.images.gel": Feature((6, 4, 3), "uint8"),
    }
    recorder = record(store, "d", 0, stream_features=forms)
    with pytest.raises(ValueError, match=rf"stream '{declared}' holds float64\(2,\).*declare what comes"):
        recorder.stream(declared, 0.0, 0.0, np.zeros(2))
    recorder.discard()
    recorder = record(store, "d", 13, stream_features=forms)
    fill_streams(recorder, 13, np.random.default_rng(0))
    recorder.finish("success")
    found = store.read("d").streams
    assert {key: stream.feature for key, stream in found.items()} == forms
    assert (len(found["observation.wrench"]), len(found["observation.images.gel"])) == (130, 5)


def test_a_recording_that_something_else_changed_is_not_finished(store):
    recorder = record(store, "d", 50)
    (store.path / ".recording/d/segment-000001.npz").write_bytes(b"")
    with pytest.raises(StoreError, match=r"Episode d: 20 of 50 steps are whole.*: segment-000001.npz is"):
        recorder.finish("success")
    assert len(store.recover("d")) == 20


def test_a_recorder_that_is_closed_takes_no_more(store):
    recorder = record(store, "d", 3)
    recorder.finish()
    with pytest.raises(StoreError, match="closed"):
        recorder.append(None, None)
    with pytest.raises(ValueError, match="no steps"):
        store.recorder(id="e", task="t").finish()
    with pytest.raises(ValueError, match="flush_every is 0"):
        EpisodeStore(store.path.parent / "x").recorder(id="e", task="t", flush_every=0)


@pytest.mark.parametrize("do", ["recover", "discard", "recorder", "write"])
def test_what_this_program_is_recording_is_left_alone(store, do):
    recorder = store.recorder(id="one", task="insert the peg", seed=0, flush_every=5)
    recorder.start(observation(np.random.default_rng(0)))
    given = {"write": lambda: store.write(episode()), "recorder": lambda: store.recorder(id="one", task="x")}
    again = given.get(do) or (lambda: getattr(store, do)("one"))
    with pytest.raises(LockedStoreError, match="Episode one is being recorded by this program"):
        again()
    recorder.discard()
    record(store, "one", 13).finish()
    np.testing.assert_array_equal(store.read("one").action, episode().action)


def test_a_fork_of_the_recording_program_writes_nothing(store):
    recorder = record(store, "one", 13)
    child = os.fork()
    if not child:
        try:
            recorder.flush()
        except StoreError as error:
            os._exit(7 if "which this one is a fork" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    recorder.finish("success")
    assert len(store.read("one")) == 13


def started(store, sample, **facts):
    recorder = store.recorder(id="one", task="t", **facts)
    recorder.start({"observation.state": sample})
    return recorder


def add(recorder, number, sample, **facts):
    step = Step(action=[number], wall_time=1e9, monotonic_time=float(number), **facts)
    recorder.append(step, {"observation.state": sample})


@pytest.mark.parametrize("plain", [np.arange(5, dtype=np.uint8), np.array([7, 8, 9])])
def test_a_picture_where_none_was_before_is_refused_and_leaves_no_trace(store, plain):
    picture = np.full((5, 4, 3), 9, np.uint8)
    recorder = started(store, plain)
    recorder.stream("observation.touch", 0.0, 1e9, plain)
    with pytest.raises(ValueError, match="is uint8"):
        recorder.stream("observation.touch", 0.1, 1e9, picture)
    with pytest.raises(ValueError, match="is uint8"):
        add(recorder, 0, picture)
    recorder.stream("observation.touch", 0.2, 1e9, plain + 1)
    add(recorder, 0, plain + 1)
    recorder.finish()
    found = store.read("one")
    np.testing.assert_array_equal(found.observations["observation.state"], [plain, plain + 1])
    np.testing.assert_array_equal(found.streams["observation.touch"].values, [plain, plain + 1])


@pytest.mark.parametrize("kind", ["complex64", "U3", "datetime64[s]", "object", [("x", "f4")]])
def test_what_cannot_be_stored_is_refused_when_it_comes_and_not_at_the_end(store, kind):
    bad = np.zeros(3, kind)
    with store.recorder(id="one", task="t") as recorder, pytest.raises(ValueError, match="cannot be stored"):
        recorder.start({"observation.state": bad})
    store.discard("one")
    recorder = started(store, np.zeros(3))
    with pytest.raises(ValueError, match="cannot be stored"):
        recorder.stream("observation.wrench", 0.0, 1e9, bad)
    add(recorder, 0, np.ones(3))
    recorder.finish()
    assert store.read("one").streams == {}


PLAN = np.zeros((4, 2))
WRONG_PLANS = {
    "number": (Chunk(0, 1, PLAN), "there is a plan 0 already"),
    "actions": (Chunk(1, 1, np.zeros((4, 3))), "plan actions"),
    "type": (Chunk(1, 1, PLAN.astype(np.float32)), "plan actions"),
    "noise": (Chunk(1, 1, PLAN, noise=np.zeros((4, 9))), "plan noise"),
    "candidates": (Chunk(1, 1, PLAN, candidates=np.zeros((2, 5, 2))), "plan candidates"),
    "complex": (Chunk(1, 1, PLAN.astype(complex)), "cannot be stored"),
}


@pytest.mark.parametrize(("plan", "why"), WRONG_PLANS.values(), ids=WRONG_PLANS)
def test_a_plan_that_would_spoil_the_episode_is_refused_and_not_kept(store, plan, why):
    recorder = started(store, np.zeros(3))
    first = Chunk(0, 0, PLAN, noise=np.zeros((4, 3)), candidates=np.zeros((2, 4, 2)))
    recorder.add_chunk(first)
    with pytest.raises(ValueError, match=why):
        recorder.add_chunk(plan)
    add(recorder, 0, np.ones(3), chunk_id=0, chunk_index=0)
    recorder.finish()
    assert [chunk.id for chunk in store.read("one").chunks] == [0]


@pytest.mark.parametrize(
    "fact", [{"source": "robot"}, {"segment_kind": "x"}, {"reward": None}, {"chunk_id": 0.5}]
)
def test_a_step_with_an_impossible_fact_is_refused_and_not_kept(store, fact):
    recorder = started(store, np.zeros(3), flush_every=2)
    with pytest.raises(ValueError, match=f"Episode one, step 0: {next(iter(fact))} is"):
        add(recorder, 0, np.ones(3), **fact)
    for t in range(5):
        add(recorder, t, np.full(3, float(t)))
    recorder.finish()
    assert store.read("one").action[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_steps_that_name_a_missing_plan_are_told_at_the_end_and_recovered_when_it_never_came(store):
    recorder = started(store, np.zeros(3))
    recorder.add_chunk(Chunk(0, 0, PLAN))
    add(recorder, 0, np.ones(3), chunk_id=1, chunk_index=0)
    with pytest.raises(ValueError, match=r"steps name plans \[1\], which were not added"):
        recorder.finish()
    recorder.flush()
    recorder.close()
    assert store.recover("one").chunk_id.tolist() == [1]


def test_facts_that_are_not_json_lose_no_step(store):
    recorder = started(store, np.zeros(3), flush_every=2)
    recorder.metadata["camera"] = object()
    add(recorder, 0, np.ones(3))
    with pytest.raises(TypeError, match="has no place in an episode's metadata"):
        add(recorder, 1, np.ones(3))
    recorder.metadata["camera"] = "left"
    add(recorder, 2, np.ones(3))
    recorder.finish()
    assert store.read("one").action[:, 0].tolist() == [0, 1, 2]


def test_a_flush_that_is_broken_off_ends_the_recording_before_it(store, monkeypatch):
    recorder = started(store, np.zeros(3), flush_every=2)
    add(recorder, 0, np.ones(3))
    add(recorder, 1, np.ones(3))
    add(recorder, 2, np.ones(3))

    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("data.recording.files._segment", stopped)
    with pytest.raises(KeyboardInterrupt), recorder:
        add(recorder, 3, np.ones(3))
    monkeypatch.undo()
    assert store.recover("one").action[:, 0].tolist() == [0, 1]


def test_a_recording_stays_when_an_episode_of_its_id_is_copied_in(store):
    left = die(record(store, "d", 70))
    copied = store.path / "d"
    shutil.copytree(store.path / "a", copied)
    store.write(episode("f"))
    record(store, "g", 30).finish()
    assert store.partials() == [Partial("d", 60, active=False)]
    for again in (lambda: store.recover("d"), lambda: store.write(episode("d"))):
        with pytest.raises(StoreError, match=r"d exists already.* unfinished recording of it stays"):
            again()
    shutil.rmtree(copied)
    assert len(store.recover("d")) == 60
    assert not left.exists()


def test_what_a_writer_left_that_died_right_after_the_commit_is_no_recording(store, monkeypatch):
    remove = shutil.rmtree

    def killed(folder, **options):
        if folder.name == "d" and "d" in store:
            raise SystemExit
        remove(folder, **options)

    for before in (False, True):  # the journal was removed
        monkeypatch.setattr("data.recording.intake.shutil.rmtree", killed)
        if before:
            monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            record(store, "d", 30).finish()
        monkeypatch.undo()
        left = store.path / ".recording/d"
        assert (left / "journal.jsonl").exists() == before
        assert store.partials() == []
        with pytest.raises(KeyError, match="No unfinished recording 'd'"):
            store.recover("d")
        store.write(episode("f"))
        assert not left.exists()
        for id_ in "df":
            store.remove(id_)


def test_looking_for_recordings_keeps_nobody_from_recording(store, monkeypatch):
    die(record(store, "d", 30))
    with (store.path / "zarr.json").open() as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        monkeypatch.setattr("data.lock.time.sleep", lambda _: looker.close())  # it has seen enough
        store.recorder(id="e", task="t").discard()
    monkeypatch.undo()


def test_two_who_look_do_not_take_each_other_for_a_recorder(store):
    die(record(store, "d", 30))
    with (store.path / "zarr.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as who looks at this moment
        assert store.partials() == [Partial("d", 20, active=False)]


def test_closing_a_recorder_keeps_every_step(store):
    record(store, "d", 33).close()
    assert store.partials() == [Partial("d", 33, active=False)]
    assert len(store.recover("d")) == 33
