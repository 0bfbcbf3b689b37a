"""`robot-rl refine pps` end to end on a toy task whose base knows nothing of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import sim
from policies.checkpoint import load
from robot_rl.collect import CollectConfig, collect
from robot_rl.control import run_wave
from robot_rl.guide.pps import PpsConfig, pps
from robot_rl.guide.proxy_fit import ProxyFit
from robot_rl.parts import load_refiner
from tests.robot_rl.toy import TOY, TWO_GOALS, save_toy_policy

FIT = ProxyFit(steps=300, batch=64, warmup=20, average=0.9, checkpoint_steps=150)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pps")
    collect(CollectConfig(out=folder / "demos", task=TOY, episodes=20, workers=1))
    return save_toy_policy(folder / "base")


@pytest.fixture(scope="module")
def config(base):
    return PpsConfig(
        policy=base, data=base.parent / "demos", out=base.parent / "pps", task=TOY, hidden=64, layers=2,
        paths=1000, reference=replace(FIT, steps=1500, checkpoint_steps=1500), tuning=FIT,
        gamma=1.0, cap=10.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(config):
    return pps(config)


def lateness(base, refiner):
    """Distance from the origin at the end of 8 episodes, and the episodes' base actions."""
    envs = [sim.make(TOY, limit=6, hopeless_seeds=10**9) for _ in range(8)]
    episodes = run_wave(envs, range(8), load(base), refiner)
    return np.mean([np.linalg.norm(e.observations["observation.state"][-1]) for e in episodes])


def test_it_steers_a_base_that_knows_nothing_to_what_was_demonstrated(base, run):
    result = json.loads((run / "result.json").read_text())
    assert result["base_hash_before"] == result["base_hash_after"] == load(base).hash()
    assert result["path_error"] < 0.05
    assert lateness(base, load_refiner(run)) < 0.6 * lateness(base, None)


def test_chunks_of_other_observations_do_not(base, config, run):
    shuffled = pps(replace(config, out=config.out.parent / "shuffled", control="shuffled"))
    assert lateness(base, load_refiner(run)) < 0.7 * lateness(base, load_refiner(shuffled))


@pytest.fixture(scope="module")
def both(config):
    demos = config.out.parent / "both"
    collect(CollectConfig(out=demos, task=TWO_GOALS, episodes=40, workers=1))
    return replace(config, data=demos, out=config.out.parent / "told", task=TWO_GOALS)


def reached(base, refiner, **options):
    """Share of 24 episodes of both tasks that came to the right goal."""
    episodes = run_wave([sim.make(TWO_GOALS, **options) for _ in range(24)], range(24), load(base), refiner)
    assert len({episode.task for episode in episodes}) == 2
    return np.mean([episode.success for episode in episodes])


def test_one_pair_of_proxies_serves_two_tasks_though_the_base_reads_no_text(base, both):
    refiner = load_refiner(pps(both))
    assert not load(base).spec.reads_task
    assert refiner.hooks[0].keys == ("observation.state", "task")
    assert reached(base, None) < 0.5
    assert reached(base, refiner) > 0.8
    assert reached(base, refiner, told="other") < 0.3


def test_proxies_that_do_not_read_the_text_of_several_tasks_are_warned_of(both, caplog):
    few = replace(FIT, steps=1, warmup=1, checkpoint_steps=1)
    blind = replace(both, out=both.out.parent / "blind", inputs=("observation.state",), paths=16)
    pps(replace(blind, reference=few, tuning=few))
    assert "demonstrations are of 2 tasks, but the proxies do not read the text" in caplog.text


def test_interrupted_it_ends_with_the_same_proxies(config, run, monkeypatch):
    from robot_rl.guide import pps as module

    again = replace(config, out=config.out.parent / "again")
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_task", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pps(again)
    resumed = pps(replace(again, resume=True))
    assert load_refiner(resumed).version == load_refiner(run).version
    for mine, other in zip(
        load_refiner(resumed).hooks[0].tensors().items(),
        load_refiner(run).hooks[0].tensors().items(),
        strict=True,
    ):
        assert mine[0] == other[0]
        assert torch.equal(mine[1], other[1])


def test_values_out_of_range_are_refused(config):
    with pytest.raises(ValueError, match="gamma is 3"):
        replace(config, gamma=3.0)
    with pytest.raises(ValueError, match="batch is 0"):
        ProxyFit(batch=0)
    with pytest.raises(ValueError, match=r"has no observation\.touch"):
        pps(replace(config, out=config.out.parent / "other", inputs=("observation.touch",)))
