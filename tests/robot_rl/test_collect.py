import dataclasses
import json

import pytest

from data.records import Source, equal
from data.store import EpisodeStore
from robot_rl import collect as collecting
from robot_rl.collect import CollectConfig, collect
from robot_rl.evaluate import EvaluateConfig
from robot_rl.runs import RunError
from robot_rl.seeds import DEMONSTRATION_SEEDS
from tests.robot_rl.toy import TOY


def config(folder, **changes):
    return CollectConfig(out=folder, task=TOY, **{"workers": 1, "episodes": 5, "seed": 0, **changes})


def read(result):
    return list(EpisodeStore(result.store))


def test_kept_demonstrations_are_the_same_for_any_number_of_workers(tmp_path):
    alone = collect(config(tmp_path / "one", options={"hopeless_seeds": 2}))
    together = collect(config(tmp_path / "two", options={"hopeless_seeds": 2}, workers=2))
    assert (alone.kept, alone.failed, alone.attempts) == (5, 2, 7)
    assert (together.kept, together.failed, together.attempts) == (5, 2, 7)
    assert all(equal(a, b) for a, b in zip(read(alone), read(together), strict=True))
    assert [episode.seed for episode in read(alone)] == [2, 3, 4, 5, 6]


def test_a_demonstration_tells_what_the_expert_meant_and_what_was_executed(tmp_path):
    episode = max(read(collect(config(tmp_path / "run"))), key=len)
    assert episode.success
    assert set(episode.source) == {Source.DEMO}
    assert abs(episode.action).max() <= 0.2 < abs(episode.action_intended).max()
    assert episode.monotonic_time[1] - episode.monotonic_time[0] == pytest.approx(0.1)
    assert episode.extra["contact_force_n"].tolist() == list(range(1, len(episode) + 1))


def test_failures_are_kept_on_demand_and_told(tmp_path, caplog):
    caplog.set_level("INFO")
    result = collect(config(tmp_path / "run", keep_failures=True, options={"hopeless_seeds": 2}))
    assert (result.kept, result.failed, result.attempts) == (5, 2, 5)
    assert "2 attempts failed and were kept as well" in caplog.text
    assert [episode.success for episode in read(result)] == [False, False, True, True, True]


def test_an_interrupted_collection_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    whole = collect(config(tmp_path / "whole"))
    keep, calls = collecting._keep, []

    def killed_after_two(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(keep(*arguments))

    monkeypatch.setattr(collecting, "_keep", killed_after_two)
    with pytest.raises(KeyboardInterrupt):
        collect(config(tmp_path / "part"))
    monkeypatch.undo()
    with pytest.raises(RunError, match="--resume"):
        collect(config(tmp_path / "part"))
    rest = collect(config(tmp_path / "part", resume=True))
    assert all(equal(a, b) for a, b in zip(read(whole), read(rest), strict=True))


def test_an_attempt_cut_off_between_its_two_writes_is_made_again(tmp_path):
    result = collect(config(tmp_path / "run"))
    attempts = tmp_path / "run/attempts.jsonl"
    lines = attempts.read_text().splitlines(keepends=True)
    attempts.write_text("".join(lines[:-1]) + lines[-1][:5])
    again = collect(config(tmp_path / "run", resume=True))
    assert again == result
    assert [json.loads(line)["seed"] for line in attempts.read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_an_expert_that_never_succeeds_is_reported_instead_of_tried_for_ever(tmp_path):
    with pytest.raises(RuntimeError, match="failed in 20 of 20 attempts"):
        collect(config(tmp_path / "run", episodes=20, options={"hopeless_seeds": 10**9}))


def test_default_seeds_are_none_that_an_evaluation_takes(tmp_path):
    assert CollectConfig(out=tmp_path).seed == DEMONSTRATION_SEEDS
    defaults = EvaluateConfig(policy=tmp_path)
    assert defaults.seeds.stop <= DEMONSTRATION_SEEDS


def test_impossible_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="episodes is 0"):
        config(tmp_path, episodes=0)
    with pytest.raises(ValueError, match="seed is -1"):
        dataclasses.replace(config(tmp_path), seed=-1)
