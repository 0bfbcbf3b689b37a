"""Whole data sets: every episode is checked, what is damaged is named, and the others still are."""

import pytest

from data.errors import DatasetError, StoreError
from data.formats.registry import Source
from data.store import EpisodeStore
from data.validate import Kind, Severity, Thresholds, validate
from tests.data.stores import robots_store
from tests.data.validate import robot
from tests.data.validate.findings import observed, only


@pytest.fixture
def store(tmp_path):
    return robots_store(tmp_path / "s", [robot.episode(f"a-{seed}", seed=seed) for seed in range(3)])


def test_a_clean_store_is_fine(store):
    seen = []
    report = validate(store.path, progress=seen.append)
    assert report.fine
    assert (report.episodes, report.steps, report.findings) == (3, 360, [])
    assert seen == ["a-0", "a-1", "a-2"]
    assert report.measured["lag_steps"] == 1
    assert report.measured["lag_s"] == pytest.approx(0.05, rel=0.05)


def test_a_damaged_episode_is_named_and_the_others_are_checked(store):
    chunk = next((store.path / "a-1/steps").rglob("c.0*"))
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    report = validate(store.path)
    found = only(report.findings)
    assert (found.kind, found.episode, found.severity) == (Kind.DAMAGED, "a-1", Severity.ERROR)
    assert report.episodes == 3
    assert not report.fine


def test_pictures_that_do_not_fit_into_memory_are_checked_one_by_one(store, monkeypatch):
    frozen = robot.episode("b-0", seed=9)
    rows = frozen.observations["observation.images.top"].copy()
    rows[40:71] = rows[40]
    store.write(observed(frozen, "observation.images.top", rows))
    monkeypatch.setattr("data.episode_folder.available_memory", lambda: 1)
    with pytest.raises(StoreError, match="of memory are free"):
        store.read("b-0")
    found = only(validate(store.path).findings)
    assert (found.kind, found.episode) == (Kind.FROZEN, "b-0")
    assert (found.first_step, found.last_step) == (40, 70)


def test_a_store_whose_only_episode_is_damaged_is_reported(tmp_path):
    made = EpisodeStore(tmp_path / "s")
    made.write(robot.episode())
    next((made.path / "a-0/steps").rglob("c.0*")).unlink()
    assert only(validate(made.path).findings).kind is Kind.DAMAGED


def test_a_recording_that_broke_off_is_reported(store):
    recorder = store.recorder(id="b-0", task="wave", flush_every=1)
    clean = robot.episode()
    observations = [{key: rows[t] for key, rows in clean.observations.items()} for t in range(3)]
    recorder.start(observations[0])
    from data.steps import Step

    for t in range(2):
        recorder.append(Step(action=clean.action[t], wall_time=t, monotonic_time=t), observations[t + 1])
    recorder.close()
    found = only(validate(store.path).findings)
    assert (found.kind, found.episode) == (Kind.PARTIAL, "b-0")
    assert "2 steps can be recovered" in found.message


def test_lengths_that_disagree_are_told_from_other_damage(store, monkeypatch):
    """An episode written by somebody else, checksums right and one row missing."""
    from data.layout import episode_arrays

    clean = robot.episode("b-0", streams=False)
    arrays = episode_arrays(clean)
    key = "observations/observation.state"
    arrays[key] = arrays[key][:-1]
    monkeypatch.setattr("data.store.episode_arrays", lambda episode: arrays)
    store.write(clean)
    found = only(validate(store.path).findings)
    assert (found.kind, found.episode) == (Kind.LENGTHS, "b-0")
    assert "observation.state" in found.message


class Stubborn:
    """A reader that says the same of its second episode for ever."""

    def __init__(self):
        self.left = [robot.episode("a-0")]

    def __iter__(self):
        return self

    def __next__(self):
        if self.left:
            return self.left.pop()
        raise DatasetError("the second episode is broken")


def test_other_formats_report_what_their_reader_refuses_and_never_hang(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    source = Source(robot.FEATURES, robot.ACTION_SPEC, None, Stubborn())
    monkeypatch.setattr("data.validate.run.detect", lambda path: "d4rl")
    monkeypatch.setattr("data.formats.d4rl.D4rl.read", lambda self, path, **options: source)
    report = validate(tmp_path / "x")
    assert only(report.findings).message == "the second episode is broken"
    assert report.episodes == 2


def test_a_file_of_no_known_format_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("no episodes")
    with pytest.raises(ValueError, match="no known format"):
        validate(tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError):
        validate(tmp_path / "nothing")


def test_a_wrong_option_is_no_finding(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text("{}")
    assert only(validate(tmp_path).findings).kind is Kind.DAMAGED
    with pytest.raises(ValueError, match="did you mean 'cameras'"):
        validate(tmp_path, options={"camera": False})


def test_the_report_as_json_and_without_some_kinds(tmp_path):
    made = EpisodeStore(tmp_path / "s", action_spec=robot.ACTION_SPEC)
    made.write(robot.episode(outcome="unknown"))
    report = validate(made.path)
    assert not report.fine
    assert report.to_json()["findings"][0]["kind"] == "missing_outcome"
    assert report.to_json()["counts"] == {"error": 0, "warning": 1, "note": 0}
    left = report.without({Kind.OUTCOME})
    assert left.fine
    assert left.to_json()["ignored"] == {"missing_outcome": 1}


def test_impossible_thresholds_are_refused():
    with pytest.raises(ValueError, match="frozen_s is 0"):
        Thresholds(frozen_s=0)
    with pytest.raises(ValueError, match="below gap"):
        Thresholds(missed=3.0)
