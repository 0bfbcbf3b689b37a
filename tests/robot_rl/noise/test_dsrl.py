"""A tiny refinement through the noise: resume, the check before it learns, and refused bases."""

import json
import logging
from dataclasses import replace

import pytest

from data.store import EpisodeStore
from policies import checkpoint
from policies.policy import PolicyError
from robot_rl.control import run_wave
from robot_rl.noise.dsrl import RANDOM, DsrlConfig, dsrl
from robot_rl.noise.learner_config import NoiseLearnerConfig
from robot_rl.noise.preflight import judge_preflight
from robot_rl.noise.space import NoiseSpaceConfig
from robot_rl.online import OnlineRun
from robot_rl.parts import load_refiner
from tests.robot_rl.toy import TOY, Toy, save_toy_policy


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_toy_policy(tmp_path_factory.mktemp("base"))


def config(base, out, **changed):
    learner = NoiseLearnerConfig(width=16, batch=16)
    plain = DsrlConfig(
        policy=base, out=out, task=TOY, env_steps=240, warmup_steps=80, rows=4, checkpoint_rounds=1,
        updates_per_step=0.2, learner=learner,
    )  # fmt: skip
    return replace(plain, **changed)


@pytest.fixture(scope="module")
def finished(base, tmp_path_factory):
    return dsrl(config(base, tmp_path_factory.mktemp("dsrl") / "run"))


def test_every_second_wave_of_the_warm_up_chooses_at_random_and_then_it_learns(base, finished):
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["refined"] for row in rows[:3]] == [0, 1, 0]
    assert rows[0]["noise_rms"] == pytest.approx(1.0, abs=0.1)
    assert rows[1]["noise_rms"] == pytest.approx(1.5 / 3**0.5, abs=0.1)
    assert rows[-1]["refined"] == 1
    assert {"critic_loss", "entropy", "temperature"} <= rows[-1].keys()
    versions = [episode.refiner_version for episode in EpisodeStore(finished / "episodes")]
    assert versions[:8] == [""] * 4 + [RANDOM] * 4
    (bare,), (refined,) = (
        run_wave([Toy()], [5], checkpoint.load(base), refiner) for refiner in (None, load_refiner(finished))
    )
    assert bare.action.tobytes() != refined.action.tobytes()


@pytest.mark.parametrize("variant", ["sac", pytest.param("na", marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_with_the_same_refiner(base, finished, tmp_path, monkeypatch, variant):
    whole = finished if variant == "sac" else dsrl(config(base, tmp_path / "whole", variant=variant))
    stopped, wave, count = config(base, tmp_path / "run", variant=variant), OnlineRun._wave, 0

    def interrupt(self, *arguments):
        nonlocal count
        count += 1
        if count > 4:
            raise KeyboardInterrupt
        return wave(self, *arguments)

    monkeypatch.setattr(OnlineRun, "_wave", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dsrl(stopped)
    monkeypatch.undo()
    dsrl(replace(stopped, resume=True))
    assert load_refiner(tmp_path / "run").version == load_refiner(whole).version


def test_a_base_that_takes_no_noise_is_refused_with_what_would_work(base, tmp_path, monkeypatch):
    policy = checkpoint.load(base)
    closed = replace(policy.spec, supports=replace(policy.spec.supports, noise=False))
    monkeypatch.setattr(type(policy), "spec", closed)
    with pytest.raises(PolicyError, match=r"dsrl needs a policy that takes the noise .* allows: residual"):
        dsrl(config(base, tmp_path / "run"))


def test_a_key_that_the_task_lacks_is_refused_before_the_warm_up(base, tmp_path):
    with pytest.raises(ValueError, match=r"'observation\.wrnch', which is not among"):
        dsrl(config(base, tmp_path / "run", keys=("observation.wrnch",)))
    with pytest.raises(ValueError, match="rank is 9, above the horizon 4"):
        dsrl(config(base, tmp_path / "run", space=NoiseSpaceConfig(parameters="low-rank", rank=9)))


def test_choices_that_the_base_cannot_act_on_are_refused_or_warned_of(caplog):
    good, bad, worse = [True] * 12 + [False] * 4, [True] * 6 + [False] * 10, [False] * 16
    judge_preflight(good, good, mode="refuse")
    assert not caplog.records
    with pytest.raises(ValueError, match=r"succeeds in 0% of 16 episodes, on its own in 75% of 16: too few"):
        judge_preflight(good, worse, mode="refuse")
    with caplog.at_level(logging.WARNING):
        judge_preflight(good, worse, mode="warn")
        judge_preflight(good, bad, mode="refuse")
        judge_preflight(worse, worse, mode="refuse")
    assert [record.message[:44] for record in caplog.records] == [
        "on noise chosen at random the base succeeds ",
        "on noise chosen at random the base succeeds ",
        "the base succeeded in none of 16 episodes: c",
    ]
    judge_preflight(good, worse, mode="off")
    assert len(caplog.records) == 3
