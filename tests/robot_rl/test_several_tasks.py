"""One base of two tasks, told apart by the text alone, and one refiner of each method for both."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import sim
from policies.checkpoint import load
from policies.flow_config import FlowConfig
from robot_rl.cli import main
from robot_rl.collect import CollectConfig, collect
from robot_rl.control import run_wave
from robot_rl.correct.residual_learner import ResidualLearnerConfig
from robot_rl.correct.residual_recipe import RefineConfig, refine
from robot_rl.critics.chunk_fit import ChunkFit
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.guide.absorbing import reguide
from robot_rl.guide.critic_method import CriticConfig, refine_by_value
from robot_rl.guide.dynamics import DynamicsConfig
from robot_rl.guide.lpb import LpbConfig, lpb
from robot_rl.guide.phases import PhaseConfig
from robot_rl.guide.pps import PpsConfig, pps
from robot_rl.guide.proxy_fit import ProxyFit
from robot_rl.guide.reguide_config import ReGuideConfig
from robot_rl.noise.dsrl import DsrlConfig, dsrl
from robot_rl.noise.learner_config import NoiseLearnerConfig
from robot_rl.parts import load_refiner
from robot_rl.train import TrainConfig, train
from tests.robot_rl.toy import TOY, TWO_GOALS, Toy

GOALS = ("go to the left goal", "go to the right goal")
NETWORK = FlowConfig(horizon=4, executed_steps=2, hidden=64, layers=2, steps=4)
PROXY = ProxyFit(steps=10, batch=16, warmup=1, average=0.9, checkpoint_steps=10)
CHUNKS = ChunkFit(steps=10, batch=16, width=16, critics=2, average=0.9, checkpoint_steps=10)
DYNAMICS = DynamicsConfig(steps=10, hidden=16, layers=1, warmup=1, batch=16)
ONLINE = {"env_steps": 700, "warmup_steps": 200, "rows": 4, "checkpoint_rounds": 1, "updates_per_step": 0.1}
GUIDED = {"rollouts": 8, "rows": 4, "guided_steps": 2, "trial_episodes": 0, "dynamics": DYNAMICS}
NOISE = NoiseLearnerConfig(width=16, batch=16)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A base that nearly always goes to the goal it is told, and the demonstrations it learned from."""
    place = tmp_path_factory.mktemp("two")
    collect(CollectConfig(out=place / "demos", task=TWO_GOALS, episodes=40, workers=1))
    config = TrainConfig(
        data=place / "demos", out=place / "base", network=NETWORK, steps=600, batch=64, warmup=20, holdout=0
    )
    return train(config)


def refined(method, base, out):
    common = {"policy": base, "out": out, "task": TWO_GOALS}
    data = {"data": base.parent / "demos"}
    if method == "residual":
        return refine(RefineConfig(**common, **ONLINE, learner=ResidualLearnerConfig(width=16, batch=16)))
    if method.startswith("dsrl"):
        variant = method.removeprefix("dsrl ")
        return dsrl(DsrlConfig(**common, **ONLINE, variant=variant, learner=NOISE, preflight="off"))
    if method.startswith("critic"):
        use = method.removeprefix("critic ")
        found = CriticConfig(**common, rollouts=8, rows=4, guided_steps=1, critic=CHUNKS, candidates=2)
        return refine_by_value(replace(found, use=use))
    if method == "pps":
        return pps(PpsConfig(**common, **data, hidden=16, layers=1, paths=32, reference=PROXY, tuning=PROXY))
    if method == "lpb":
        return lpb(LpbConfig(**common, **data, **GUIDED, percentile=50))
    phases = PhaseConfig(phases=2, clusters=3)
    return reguide(ReGuideConfig(**common, **data, **GUIDED, absorb=(), phases=phases))


def part_of(refiner):
    return next(
        part for part in (*refiner.hooks, refiner.noise, refiner.select, refiner.correct) if part is not None
    )


SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("residual", "dsrl sac", "dsrl na")]
EACH = [*SLOW, "critic guide", "critic select", "lpb", "reguide"]


@pytest.fixture(scope="module")
def runs(base, tmp_path_factory):
    made = {}

    def run(method):
        if method not in made:
            made[method] = refined(
                method, base, tmp_path_factory.mktemp("refined") / method.replace(" ", "-")
            )
        return made[method]

    return run


def test_the_base_tells_its_tasks_apart(base):
    assert load(base).spec.reads_task
    right = evaluate(EvaluateConfig(policy=base, task=TWO_GOALS, episodes=24, workers=1))
    wrong = evaluate(
        EvaluateConfig(policy=base, task=TWO_GOALS, episodes=24, workers=1, options={"told": "other"})
    )
    assert all(rate.success_rate > 0.7 for rate in right.by_text.values())
    assert wrong.success_rate < 0.3


@pytest.mark.parametrize("method", [*EACH, "pps"])
def test_one_refiner_of_both_tasks_is_judged_on_either(base, runs, method):
    run = runs(method)
    config = EvaluateConfig(policy=base, refiner=(run,), task=TWO_GOALS, episodes=8, workers=1)
    found = evaluate(config)
    assert set(found.by_text) == set(GOALS)
    payload = json.dumps(part_of(load_refiner(run)).payload())
    reads = ('"task"',) if method == "pps" else GOALS
    assert all(text in payload for text in reads)


@pytest.mark.parametrize("method", EACH)
def test_a_third_task_is_refused_by_name(base, runs, method):
    refiner = load_refiner(runs(method))
    with pytest.raises(
        ValueError, match=f"'{Toy.task_text}' is none of those that this refiner was fitted on"
    ):
        run_wave([sim.make(TOY)], [0], load(base), refiner)


def test_rows_of_two_tasks_in_one_batch_are_as_if_each_were_alone(base, runs):
    """The text that a row's neighbour is told plays no part."""
    refiner = load_refiner(runs("lpb"))
    together = run_wave([sim.make(TWO_GOALS) for _ in range(6)], range(6), load(base), refiner)
    assert len({episode.task for episode in together}) == 2
    for seed, episode in enumerate(together):
        (alone,) = run_wave([sim.make(TWO_GOALS)], [seed], load(base), refiner)
        np.testing.assert_allclose(episode.action[:4], alone.action[:4], atol=1e-5)


@pytest.mark.slow
def test_pick_place_from_demonstrations_of_both_bins_to_the_rate_of_each(tmp_path, capsys):
    place = {name: str(tmp_path / name) for name in ("demos", "base", "lpb", "out.json")}
    task, one = ["--task", "pick-place"], ["--workers", "1"]
    assert main(["collect", *task, *one, "--episodes", "16", "--out", place["demos"]]) == 0
    few = ["--steps", "200", "--warmup", "20", "--holdout", "0"]
    assert main(["train", "--data", place["demos"], "--out", place["base"], *few]) == 0
    refine_few = ["--rollouts", "4", "--rows", "4", "--trial-episodes", "0", "--dynamics.steps", "50"]
    source = ["--policy", place["base"], "--data", place["demos"]]
    assert main(["refine", "lpb", *task, *source, "--out", place["lpb"], *refine_few]) == 0
    measured = ["--policy", place["base"], "--refiner", place["lpb"], "--episodes", "8", "--batch", "8"]
    assert main(["evaluate", *task, *one, *measured, "--json", place["out.json"]]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["by_text"]
    bins = [f"put the can into the {name} bin" for name in ("blue", "red")]
    assert list(found) == bins
    assert sum(each["episodes"] for each in found.values()) == 8
    said = capsys.readouterr().out
    assert all(f"  {text}: " in said for text in bins)
