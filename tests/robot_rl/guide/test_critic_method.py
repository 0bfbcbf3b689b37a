"""`robot-rl refine critic` end to end on the toy task."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from policies.checkpoint import load
from robot_rl.critics.chunk_fit import ChunkFit
from robot_rl.guide.critic_guidance import CriticGuidance
from robot_rl.guide.critic_method import CriticConfig, refine_by_value
from robot_rl.parts import load_refiner
from robot_rl.rollouts import Rollouts
from robot_rl.select.best_of import BestOf
from tests.robot_rl.toy import TOY, save_toy_policy

FIT = ChunkFit(steps=60, batch=32, width=16, critics=2, average=0.9, checkpoint_steps=30)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("critic")
    return CriticConfig(
        policy=save_toy_policy(folder / "base"), out=folder / "run", task=TOY, rollouts=16, rows=4, eta=0.1,
        guided_steps=1, critic=FIT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(config):
    return refine_by_value(config)


def test_it_leaves_a_hook_and_says_what_the_critic_foresees(config, run):
    result = json.loads((run / "result.json").read_text())
    assert (result["rollouts"], result["critic"]["chunks"] > 0) == (16, True)
    assert result["base_hash_before"] == result["base_hash_after"] == load(config.policy).hash()
    (hook,) = load_refiner(run).hooks
    assert isinstance(hook, CriticGuidance)
    assert (hook.eta, hook.guided_steps) == (0.1, 1)


def test_it_leaves_a_selector_when_asked(config):
    found = refine_by_value(replace(config, out=config.out.parent / "select", use="select", candidates=3))
    selector = load_refiner(found).select
    assert isinstance(selector, BestOf)
    assert selector.count == 3


def test_interrupted_in_the_rollouts_it_ends_alike(config, run, monkeypatch):
    again = replace(config, out=config.out.parent / "again")
    real, calls = Rollouts.run, []

    def stops(self, number, refiner):
        calls.append(number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, number, refiner)

    with monkeypatch.context() as patch:
        patch.setattr(Rollouts, "run", stops)
        with pytest.raises(KeyboardInterrupt):
            refine_by_value(again)
    assert load_refiner(refine_by_value(replace(again, resume=True))).version == load_refiner(run).version


def test_values_out_of_range_are_refused(config):
    for name, value in (("rollouts", 1), ("eta", -0.1), ("candidates", 0)):
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            replace(config, **{name: value})
