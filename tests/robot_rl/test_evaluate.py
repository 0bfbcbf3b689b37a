import dataclasses
import json

import numpy as np
import pytest

from data.config import from_dict, to_dict
from data.records import equal
from data.store import EpisodeStore
from robot_rl.evaluate import EvaluateConfig, evaluate, record_episodes
from robot_rl.statistics import wilson_interval
from robot_rl.waves import split_waves
from sim.shifts import Shifts
from tests.robot_rl.toy import TOY, TWO_TOYS, Toy, save_toy_policy


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = save_toy_policy(tmp_path_factory.mktemp("toy") / "policy")
    return EvaluateConfig(policy=folder, task=TOY, episodes=21, seed=5, workers=1, batch=4)


@pytest.fixture(scope="module")
def alone(config):
    return evaluate(config)


def test_outcomes_are_the_same_seed_by_seed_in_two_processes(config, alone):
    together = evaluate(dataclasses.replace(config, workers=2))
    assert together.workers == 2
    assert together.episodes == alone.episodes
    assert {episode.success for episode in alone.episodes} == {True, False}


def test_every_seed_counts_once_and_the_filling_seeds_do_not(config, alone):
    assert [episode.seed for episode in alone.episodes] == list(range(5, 26))
    last = list(split_waves(config))[-1]
    assert (last.seeds, last.kept) == ((25, 26, 27, 28), 1)


def test_a_seed_has_the_same_outcome_in_a_shorter_evaluation_on_the_same_waves(config, alone):
    shorter = evaluate(dataclasses.replace(config, episodes=6))
    assert shorter.episodes == alone.episodes[:6]


def test_json_has_the_documented_shape(config, alone, tmp_path):
    result = evaluate(dataclasses.replace(config, episodes=4, json=tmp_path / "deep/out.json"))
    content = json.loads((tmp_path / "deep/out.json").read_text())
    assert content["success_rate"] == sum(row["success"] for row in content["episodes"]) / 4
    assert content["interval"][0] <= content["success_rate"] <= content["interval"][1]
    assert {"seed", "success", "steps", "max_contact_force_n", "distance_m"} <= set(content["episodes"][0])
    assert content["timing"]["env_steps"] == sum(row["steps"] for row in content["episodes"])
    assert content["base_hash"] == result.base_hash
    assert content["versions"]["python"]


def test_one_text_has_the_rate_of_all(alone):
    (rate,) = alone.by_text.values()
    assert list(alone.by_text) == [Toy.task_text]
    assert (rate.success_rate, rate.interval) == (alone.success_rate, alone.interval)


def test_each_text_is_counted_with_its_own_interval(config, alone, tmp_path):
    told = evaluate(dataclasses.replace(config, task=TWO_TOYS, json=tmp_path / "out.json"))
    assert told.outcomes == alone.outcomes
    content = json.loads((tmp_path / "out.json").read_text())
    assert list(content["by_text"]) == ["come from the left", "come from the right"]
    for text, found in content["by_text"].items():
        outcomes = [row["success"] for row in content["episodes"] if row["text"] == text]
        assert (found["episodes"], found["successes"]) == (len(outcomes), sum(outcomes))
        assert found["success_rate"] == sum(outcomes) / len(outcomes)
        assert found["interval"] == list(wilson_interval(sum(outcomes), len(outcomes)))
    assert sum(found["episodes"] for found in content["by_text"].values()) == 21


def test_recorded_episodes_are_those_that_were_counted(config, alone, tmp_path):
    kept = dataclasses.replace(config, record=(7, 25), record_to=tmp_path / "episodes")
    evaluate(kept)
    stored = list(EpisodeStore(tmp_path / "episodes"))
    again = record_episodes(config, [25, 7])
    assert [episode.seed for episode in again] == [25, 7]
    assert sorted(episode.seed for episode in stored) == [7, 25]
    for episode in again:
        assert len(episode) == alone.episodes[episode.seed - 5].steps
        twin = next(one for one in stored if one.seed == episode.seed)
        np.testing.assert_array_equal(twin.action, episode.action)


def test_a_store_that_holds_a_seed_already_is_refused_before_the_first_episode(config, tmp_path):
    kept = dataclasses.replace(config, episodes=1, record=(5,), record_to=tmp_path / "episodes")
    evaluate(kept)
    with pytest.raises(ValueError, match="holds toy-5-0 already: give another folder"):
        evaluate(dataclasses.replace(kept, policy=tmp_path / "is never loaded"))
    assert EpisodeStore(tmp_path / "episodes").damages() == {}


def test_waves_with_fewer_than_all_seeds_to_record_are_left_out(config):
    chosen = dataclasses.replace(config, record=(7,), record_to=config.policy)
    assert [wave.seeds for wave in split_waves(chosen) if wave.record] == [(5, 6, 7, 8)]
    assert not equal(*record_episodes(config, [7, 8]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, "episodes is 0"),
        ({"episodes": 10**9, "record": ()}, "allowed is 1 to 1,000,000"),
        ({"batch": 10**9}, "batch is 1000000000, allowed is 1 to 1024"),
        ({"seed": 1_000_000_000}, "refinement uses seeds from 1,000,000,000"),
        ({"seed": 999_999_990}, "refinement uses.*--seen-seeds"),
        ({"seed": 499_999_990}, "demonstrations use seeds from 500,000,000"),
        ({"gain": 1.5}, "gain is 1.5"),
        ({"record": (4,)}, "allowed are 5 to 25"),
        ({"record": (5,)}, "--record-to"),
    ],
)
def test_impossible_settings_are_refused_with_the_allowed_values(config, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **changes)


def test_seeds_of_training_can_be_measured_when_asked_for_and_count_as_seen(config):
    seen = dataclasses.replace(config, seed=1_000_000_000, seen_seeds=True)
    assert (config.held_out, seen.held_out) == (True, False)


def test_a_task_is_told_of_shifts_only_when_there_are_any(config):
    assert config.task_arguments == {}
    shifted = dataclasses.replace(config, options={"limit": 3}, shifts=Shifts(servo_bias_m=(0.002, 0.0, 0.0)))
    assert shifted.task_arguments == {"limit": 3, "shifts": shifted.shifts}
    assert from_dict(EvaluateConfig, to_dict(shifted)) == shifted


def test_places_that_cannot_be_written_are_refused_before_the_work(config, tmp_path):
    (tmp_path / "file").touch()
    for changes in (
        {"json": tmp_path},
        {"json": tmp_path / "file" / "x.json"},
        {"record": (5,), "record_to": tmp_path / "file"},
    ):
        with pytest.raises(ValueError, match="give a f"):
            evaluate(dataclasses.replace(config, policy=tmp_path, **changes))


def test_a_policy_of_another_task_says_which_task_to_give(tmp_path):
    folder = save_toy_policy(tmp_path / "run/base")
    config = EvaluateConfig(policy=folder, task="push-disc", episodes=1, workers=1, batch=1)
    with pytest.raises(ValueError, match=r"another task: .*Give --task with the name of the task"):
        evaluate(config)
    demos = tmp_path / "run/demonstrations"
    demos.mkdir()
    (demos / "config.json").write_text('{"config": {"task": "peg-insert"}}')
    (folder / "result.json").write_text('{"source": "elsewhere/demonstrations/episodes"}')
    with pytest.raises(ValueError, match=r"\. Give --task peg-insert\.$"):
        evaluate(config)
