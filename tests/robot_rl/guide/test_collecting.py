"""Rollouts that end with a success, and that go on where they were stopped."""

from pathlib import Path

import pytest

from data.records import equal
from policies.checkpoint import load
from robot_rl.guide.collecting import Collector
from robot_rl.guide.config import GuideConfig
from robot_rl.refiner import Refiner
from robot_rl.seeds import TRAINING_SEEDS
from tests.robot_rl.toy import TOY, save_toy_policy


@pytest.fixture
def collect(tmp_path):
    policy = load(save_toy_policy(tmp_path / "base"))
    config = GuideConfig(policy=tmp_path, out=tmp_path, data=tmp_path, task=TOY, rows=4, seed=3)

    def run(folder: Path, waves: int = 10, successes: int | None = 2):
        collector = Collector(config, policy, folder, config.rows)
        store = collector.store(folder / "kept")
        found = collector.collect(store, waves, lambda _: Refiner(), name="test", successes=successes)
        return store, found, collector.run(Refiner())

    return run


def test_collection_ends_with_the_wanted_success_and_the_next_wave_takes_new_seeds(collect, tmp_path) -> None:
    store, found, after = collect(tmp_path / "a")
    assert [episode.success for episode in found].count(True) == 2
    assert found[-1].success
    assert sorted(episode.id for episode in found) == store.ids()
    seeds = [episode.seed for episode in found]
    assert seeds == list(range(TRAINING_SEEDS + 3_000_000, TRAINING_SEEDS + 3_000_000 + len(seeds)))
    assert min(episode.seed for episode in after) > max(seeds)


@pytest.mark.parametrize("lost", [[], [-1], [0, -1]], ids=["nothing", "the last", "first and last"])
def test_collected_again_it_is_the_same_whatever_was_lost(collect, tmp_path, lost) -> None:
    store, whole, after = collect(tmp_path / "a")
    for index in lost:
        store.remove(whole[index].id)
    again, found, later = collect(tmp_path / "a")
    assert all(map(equal, whole, found))
    assert len(whole) == len(found)
    assert all(map(equal, after, later))
    assert again.ids() == sorted(episode.id for episode in whole)


def test_a_number_of_waves_bounds_it(collect, tmp_path) -> None:
    _, found, _ = collect(tmp_path / "a", waves=2, successes=1000)
    assert len(found) == 8
