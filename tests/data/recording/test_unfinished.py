"""Recordings that are not finished, or not as they should be."""

import numpy as np
import pytest

from data.errors import StoreError
from data.features import Feature
from data.records import Outcome
from data.store import EpisodeStore, Partial
from tests.data.episodes import episode, fill_streams, record


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
    record(store, "d", 70).close()
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
    record(store, "d", 30).close()
    store.discard("d")
    record(store, "d", 5).finish("failure")
    again = record(store, "e", 30)
    again.discard()
    record(store, "e", 6).finish("failure")
    assert [store.summary(id_).steps for id_ in store.ids()] == [7, 8, 9, 5, 6]
    with pytest.raises(KeyError, match="No unfinished recording 'e'"):
        store.discard("e")


def test_a_damaged_piece_of_a_recording_ends_what_is_recovered(store):
    record(store, "d", 70).close()
    piece = store.path / ".recording/d/segment-000001.npz"
    content = bytearray(piece.read_bytes())
    content[-200] ^= 1
    piece.write_bytes(content)
    assert len(store.recover("d")) == 20


def test_a_journal_line_that_was_cut_off_does_not_count(store):
    record(store, "d", 50).close()
    journal = store.path / ".recording/d/journal.jsonl"
    journal.write_text(journal.read_text()[:-10])
    assert store.partials() == [Partial("d", 20, active=False)]


@pytest.mark.parametrize("broken", [b"\xff", b"{}", b"[1]", b"null", b"{"])
def test_a_damaged_journal_line_ends_what_is_recovered_and_no_other_is_lost(store, broken):
    record(store, "d", 70).close()
    journal = store.path / ".recording/d/journal.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[2] = broken
    journal.write_bytes(b"\n".join(lines))
    assert store.partials() == [Partial("d", 20, active=False)]
    assert len(store.recover("d")) == 20


def test_a_digit_that_flipped_in_the_journal_ends_what_is_recovered(store):
    record(store, "d", 70).close()
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
    record(store, "d", 70).close()
    without_checksums(store.path / ".recording/d/journal.jsonl")
    assert len(store.recover("d")) == 60


def test_a_recording_stays_when_the_episode_made_of_it_cannot_be_read(store):
    record(store, "d", 70).close()
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


def test_a_recorder_that_is_closed_takes_no_more(store):
    recorder = record(store, "d", 3)
    recorder.finish()
    with pytest.raises(StoreError, match="closed"):
        recorder.append(None, None)
    with pytest.raises(ValueError, match="no steps"):
        store.recorder(id="e", task="t").finish()
    with pytest.raises(ValueError, match="flush_every is 0"):
        EpisodeStore(store.path.parent / "x").recorder(id="e", task="t", flush_every=0)
