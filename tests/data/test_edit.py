from dataclasses import replace

import numpy as np
import pytest

from data.edit import by_field, by_share, merge, split
from data.errors import DamagedEpisodeError, DatasetError
from data.records import equal
from data.store import EpisodeStore
from tests.data.stores import stored
from tests.data.validate import robot


def store_of(path, ids, action_spec=robot.ACTION_SPEC, features=robot.FEATURES, **changes):
    given = (robot.episode(id_, steps=5, seed=i, streams=False, **changes) for i, id_ in enumerate(ids))
    return stored(path, given, features=features, action_spec=action_spec)


def test_a_merge_holds_every_episode_unchanged(tmp_path):
    a, b = store_of(tmp_path / "a", ["a-0", "a-1"]), store_of(tmp_path / "b", ["b-0"])
    seen = []
    edited = merge([a.path, b.path], tmp_path / "all", progress=seen.append)
    merged = EpisodeStore(tmp_path / "all")
    assert merged.ids() == ["a-0", "a-1", "b-0"] == seen
    assert edited.counts == {tmp_path / "all": 3}
    assert all(equal(merged.read(id_), a.read(id_)) for id_ in a.ids())
    assert (merged.features, merged.action_spec) == (a.features, a.action_spec)


def test_an_id_that_is_taken_is_refused_or_renamed_on_request(tmp_path):
    a, b = store_of(tmp_path / "a", ["x", "x-2"]), store_of(tmp_path / "b", ["x"], outcome="failure")
    with pytest.raises(DatasetError, match=r"'x' of .*b is taken"):
        merge([a.path, b.path], tmp_path / "all")
    assert not list(tmp_path.glob("*all*"))
    edited = merge([a.path, b.path], tmp_path / "all", rename=True)
    merged = EpisodeStore(tmp_path / "all")
    assert merged.ids() == ["x", "x-2", "x-3"]
    assert merged.read("x-3").outcome == "failure"
    assert merged.read("x-3").metadata["merged_from"] == {"source": "b", "id": "x"}
    assert list(edited.renamed.values()) == ["x-3"]


def test_features_that_differ_are_named(tmp_path):
    a = store_of(tmp_path / "a", ["a-0"])
    state = replace(robot.FEATURES["observation.state"], names=("x", "y", "z", "w"))
    b = store_of(tmp_path / "b", ["b-0"], features={**robot.FEATURES, "observation.state": state})
    with pytest.raises(
        DatasetError, match=r"observation\.state'?: names is \('x', 'y', 'z', 'w'\) in .*b but"
    ):
        merge([a.path, b.path], tmp_path / "all")
    fewer = {key: feature for key, feature in robot.FEATURES.items() if "wrench" not in key}
    bare = robot.episode("c-0", steps=5, streams=False)
    bare = replace(bare, observations={key: bare.observations[key] for key in fewer})
    c = stored(tmp_path / "c", [bare], features=fewer, action_spec=robot.ACTION_SPEC)
    with pytest.raises(DatasetError, match=r"'observation\.wrench' is in .*a but not in .*c"):
        merge([c.path, a.path], tmp_path / "all")


def test_actions_that_differ_are_named(tmp_path):
    a = store_of(tmp_path / "a", ["a-0"])
    group = robot.ACTION_SPEC["groups"][0]
    b = store_of(tmp_path / "b", ["b-0"], {"rate_hz": 10.0, "groups": [{**group, "mode": "absolute"}]})
    with pytest.raises(
        DatasetError, match=r"rate_hz is 20\.0 in .* but 10\.0 .*mode of action group 'arm' is delta"
    ):
        merge([a.path, b.path], tmp_path / "all")
    c = store_of(tmp_path / "c", ["c-0"], None)
    with pytest.raises(DatasetError, match="c does not say what its actions mean"):
        merge([a.path, c.path], tmp_path / "all")


def test_a_merge_of_one_store_with_itself_is_refused(tmp_path):
    a = store_of(tmp_path / "a", ["a-0"])
    with pytest.raises(ValueError, match="two or more different"):
        merge([a.path, a.path], tmp_path / "all", rename=True)


def test_a_merge_does_not_touch_what_is_there_and_leaves_nothing_behind_when_it_fails(tmp_path):
    a, b = store_of(tmp_path / "a", ["a-0"]), store_of(tmp_path / "b", ["b-0", "b-1"])
    with pytest.raises(FileExistsError, match="exists already"):
        merge([a.path, b.path], b.path)
    next((b.path / "b-1/steps").rglob("c.0*")).unlink()
    with pytest.raises(DamagedEpisodeError, match="b-1"):
        merge([a.path, b.path], tmp_path / "all")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_split_puts_every_episode_into_exactly_one_part(tmp_path):
    source = store_of(tmp_path / "s", [f"e-{i}" for i in range(10)])
    parts = by_share(source.ids(), {"train": 0.8, "val": 0.2}, seed=3)
    edited = split(source.path, tmp_path / "out", parts)
    stores = {name: EpisodeStore(tmp_path / "out" / name) for name in ("train", "val")}
    assert {path.name: count for path, count in edited.counts.items()} == {"train": 8, "val": 2}
    assert sorted(stores["train"].ids() + stores["val"].ids()) == source.ids()
    assert all(equal(store.read(id_), source.read(id_)) for store in stores.values() for id_ in store.ids())
    assert stores["val"].features == source.features


def test_a_split_refuses_ids_without_a_part_and_parts_without_an_episode(tmp_path):
    source = store_of(tmp_path / "s", ["a", "b"])
    with pytest.raises(DatasetError, match=r"'b' of .* is in no part"):
        split(source.path, tmp_path / "out", {"a": "x"})
    with pytest.raises(DatasetError, match=r"has no episodes \['c'\]"):
        split(source.path, tmp_path / "out", {"a": "x", "b": "x", "c": "y"})
    with pytest.raises(ValueError, match="cannot name a folder"):
        split(source.path, tmp_path / "out", {"a": "../x", "b": "y"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


@pytest.mark.parametrize(
    ("count", "shares", "expected"),
    [
        (10, {"a": 0.8, "b": 0.1, "c": 0.1}, [8, 1, 1]),
        (7, {"a": 0.5, "b": 0.5}, [4, 3]),
        (3, {"a": 0.98, "b": 0.01, "c": 0.01}, [1, 1, 1]),
        (100, {"a": 0.995, "b": 0.005}, [99, 1]),
        (1, {"a": 1.0}, [1]),
    ],
)
def test_shares_become_counts_that_add_up(count, shares, expected):
    parts = by_share([f"e-{i:03d}" for i in range(count)], shares)
    assert [list(parts.values()).count(name) for name in shares] == expected


def test_a_draw_depends_on_the_seed_and_not_on_the_order():
    ids = [f"e-{i:03d}" for i in range(50)]
    shares = {"a": 0.5, "b": 0.5}
    assert by_share(ids, shares, 1) == by_share(ids[::-1], shares, 1)
    assert by_share(ids, shares, 1) != by_share(ids, shares, 2)


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": np.nan}])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(ValueError, match="add up to 1"):
        by_share(["x"], shares)


def test_parts_by_a_fact_keep_different_values_apart():
    episodes = [
        robot.episode(f"e-{i}", steps=2, task=task) for i, task in enumerate(["a b", "a/b", "", "a b"])
    ]
    parts = by_field(iter(episodes), "task")
    assert parts["e-0"] == parts["e-3"]
    assert len(set(parts.values())) == 3
    with pytest.raises(ValueError, match="choose from outcome"):
        by_field(iter(episodes), "colour")
