import dataclasses

import numpy as np
import pytest

from data.records import Chunk, Episode, EpisodeBuilder, Outcome, SegmentKind, Source, Step, check_id, equal
from tests.data.episodes import episode


def builder():
    made = EpisodeBuilder(id="e", task="t")
    made.start({"observation.state": np.zeros(2, np.float32)})
    return made


def step(t=0, **facts):
    return Step(action=[t, t + 1], wall_time=100.0 + t, monotonic_time=float(t), **facts)


def state(value):
    return {"observation.state": np.full(2, value, np.float32)}


def test_an_episode_has_one_observation_more_than_steps():
    made = builder()
    made.append(step(0, source=Source.HUMAN, segment_kind=SegmentKind.REWIND), state(1), {"force": 3.0})
    made.append(step(1, action_base=[7, 8], terminated=True, reward=1.0), state(2), {"force": 4.0})
    found = made.finish("success")
    assert len(found) == 2
    assert found.success
    np.testing.assert_array_equal(found.observations["observation.state"][:, 0], [0, 1, 2])
    np.testing.assert_array_equal(found.action, [[0, 1], [1, 2]])
    np.testing.assert_array_equal(found.action_base, [[np.nan, np.nan], [7, 8]])
    np.testing.assert_array_equal(found.source == Source.HUMAN, [True, False])
    np.testing.assert_array_equal(found.segment_kind, ["rewind", "none"])
    np.testing.assert_array_equal(found.extra["force"], [3, 4])
    np.testing.assert_array_equal(found.terminated, [False, True])
    assert found.truncated.tolist() == [False, False]
    assert found.action.dtype == np.float64
    assert found.observations["observation.state"].dtype == np.float32


def test_what_was_recorded_cannot_change():
    made = builder()
    action, seen = np.zeros(2), np.zeros(2, np.float32)
    made.append(Step(action=action, wall_time=0.0, monotonic_time=0.0), {"observation.state": seen})
    action[:], seen[:] = 9, 9
    found = made.finish()
    assert not found.action.any()
    assert not found.observations["observation.state"].any()
    with pytest.raises(ValueError, match="read-only"):
        found.action[0, 0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.task = "other"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("reward", np.zeros(12), r"reward has shape \(12,\); its first axis must be 13"),
        ("action_base", np.zeros((13, 2)), r"action_base has shape \(13, 2\)"),
        ("observations", {"a": np.zeros((13, 2))}, r"observations\['a'\].*must be 14"),
        ("action", np.zeros((13, 0)), r"action has shape \(13, 0\); \(T, A\) with T and A at least 1"),
        ("observations", {"a": np.zeros((14, 2, 0))}, r"observations\['a'\] has shape .*without any number"),
        ("extra", {"f": np.zeros(14)}, r"extra\['f'\].*must be 13"),
        ("extra", {"f": np.array([None] * 13)}, "Python objects"),
        ("source", ["robot"] * 13, r"source holds \['robot'\]; allowed"),
        ("chunks", (Chunk(0, 0, np.zeros((1, 3))),), r"chunks \[1, 2, 3\].*not among \[0\]"),
        ("outcome", "won", "won"),
        ("id", "../up", "cannot name a folder"),
        ("metadata", {"f": print}, "no place"),
    ],
)
def test_parts_that_do_not_fit_are_named(name, value, match):
    good = episode()
    facts = {field.name: getattr(good, field.name) for field in dataclasses.fields(Episode)}
    with pytest.raises((ValueError, TypeError), match=match):
        Episode(**(facts | {name: value}))


def test_a_chunk_must_be_known_once():
    good = episode()
    with pytest.raises(ValueError, match="not unique"):
        dataclasses.replace(good, chunks=(*good.chunks, good.chunks[0]))
    with pytest.raises(ValueError, match="2 axes"):
        Chunk(0, 0, np.zeros(3))


@pytest.mark.parametrize(
    ("given", "extra", "match"),
    [
        ({}, None, "missing sensor"),
        ({"observation.state": np.zeros(3, np.float32)}, None, r"float32\(3,\), before float32\(2,\)"),
        ({"observation.state": np.zeros(2)}, None, "float64"),
        (state(0), {"force": 1.0}, r"extra has keys \['force'\], before \[\]"),
    ],
)
def test_a_step_unlike_those_before_is_refused_and_leaves_no_trace(given, extra, match):
    made = builder()
    made.append(step(0), state(1))
    with pytest.raises(ValueError, match=match):
        made.append(step(1), given, extra)
    assert len(made) == 1
    made.append(step(1), state(2))
    assert len(made.finish()) == 2


def test_actions_of_another_width_are_refused():
    made = builder()
    with pytest.raises(ValueError, match=r"action_base has shape \(3,\)"):
        made.append(step(0, action_base=[1, 2, 3]), state(0))
    made.append(step(0), state(0))
    with pytest.raises(ValueError, match="action 'executed'"):
        made.append(Step(action=[1.0], wall_time=0.0, monotonic_time=0.0), state(0))


def test_the_order_of_calls_is_checked():
    made = EpisodeBuilder(id="e", task="t")
    with pytest.raises(RuntimeError, match="start"):
        made.append(step(), state(0))
    with pytest.raises(ValueError, match="no steps"):
        made.finish()
    made.start(state(0))
    with pytest.raises(RuntimeError, match="started already"):
        made.start(state(0))
    with pytest.raises(ValueError, match="empty"):
        EpisodeBuilder(id="e", task="t").start({})


def test_metadata_become_plain_json_types():
    made = episode()
    assert made.metadata == {"hole_error_m": [0.001, -0.002]}
    again = dataclasses.replace(made, metadata={"a": np.float32(2), "b": [np.nan, (1, np.bool_(True))]})
    assert again.metadata == {"a": 2.0, "b": [None, [1, True]]}
    assert type(again.metadata["a"]) is float


def test_equal_sees_every_field():
    one = episode()
    assert equal(one, episode())
    assert not equal(one, episode(seed=1))
    for change in (
        {"gain": one.gain + 0.1},
        {"outcome": Outcome.FAILURE},
        {"chunks": one.chunks[:-1], "chunk_id": one.chunk_id * 0},
    ):
        assert not equal(one, dataclasses.replace(one, **change))


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", ".hidden", "a" * 129, "a\n", "ä"])
def test_ids_that_could_leave_the_store_are_refused(bad):
    with pytest.raises(ValueError, match="folder"):
        check_id(bad)
    assert check_id("seed-000.1_a") == "seed-000.1_a"
