"""`refine lpb` and `refine reguide` from start to end on the smallest task there is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import sim
from data.config import to_dict
from data.store import EpisodeStore
from policies.checkpoint import load
from policies.flow_config import FlowConfig
from policies.policy import PolicyError
from robot_rl import one_pass
from robot_rl.collect import CollectConfig, collect
from robot_rl.control import run_wave
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.guide import absorbing
from robot_rl.guide.absorbing import base_recipe, reguide
from robot_rl.guide.dynamics import DynamicsConfig
from robot_rl.guide.lpb import LpbConfig, lpb
from robot_rl.guide.phases import PhaseConfig
from robot_rl.guide.reguide_config import ReGuideConfig, TuneConfig
from robot_rl.parts import load_refiner
from robot_rl.study.methods import refined
from robot_rl.study.plan import Cell
from robot_rl.train import TrainConfig, train
from tests.robot_rl.toy import TOY, TWO_GOALS

NETWORK = FlowConfig(horizon=4, executed_steps=2, hidden=16, layers=1, steps=4)
DYNAMICS = DynamicsConfig(steps=40, hidden=16, layers=1, warmup=5, batch=32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Demonstrations and a base that half learned them."""
    place = tmp_path_factory.mktemp("toy")
    collect(CollectConfig(out=place / "demos", task=TOY, episodes=12, workers=1))
    config = TrainConfig(
        data=place / "demos", out=place / "base", network=NETWORK, steps=60, batch=32, warmup=5, holdout=0
    )
    return place / "demos", train(config)


def common(trained, out):
    demos, base = trained
    return {
        "policy": base, "out": out, "data": demos, "task": TOY, "rollouts": 8, "rows": 4, "guided_steps": 2,
        "trial_episodes": 4, "dynamics": DYNAMICS,
    }  # fmt: skip


@pytest.fixture(scope="module")
def barrier_run(trained, tmp_path_factory):
    return lpb(LpbConfig(**common(trained, tmp_path_factory.mktemp("lpb") / "run"), eta=2.0, percentile=50))


def test_lpb_leaves_the_base_alone_and_says_what_it_found(trained, barrier_run) -> None:
    result = json.loads((barrier_run / "result.json").read_text())
    assert result["base_hash_before"] == result["base_hash_after"] == load(trained[1]).hash()
    assert result["rollouts"]["episodes"] == 8
    assert 0 < result["trial"]["guided_share"] <= 1
    assert result["expert_distance"]["p50"] == pytest.approx(result["threshold"])
    assert (barrier_run / "distance.png").stat().st_size > 5000
    noisy = [
        "residual" in episode.extra and bool(episode.extra["residual"].any())
        for episode in EpisodeStore(barrier_run / "episodes")
    ]
    assert noisy == [False] * 4 + [True] * 4, "every second wave explores"


def test_lpb_is_evaluated_like_any_refiner_and_reports_how_often_it_acted(trained, barrier_run) -> None:
    plain = EvaluateConfig(policy=trained[1], task=TOY, episodes=8, workers=1)
    refined = evaluate(replace(plain, refiner=(barrier_run,))).to_json()
    shares = [episode["lpb.active_share"] for episode in refined["episodes"]]
    assert 0 < np.mean(shares) < 1
    assert refined["base_hash"] == evaluate(plain).base_hash


def test_a_cell_of_a_study_runs_it_and_keeps_how_often_it_acted(trained, tmp_path) -> None:
    demos, base = trained
    parameters = {
        "method": "lpb", "policy": str(base), "data": str(demos), "rollouts": 8, "rows": 4, "guided_steps": 2,
        "trial_episodes": 0, "percentile": 50.0, "dynamics": to_dict(DYNAMICS),
    }  # fmt: skip
    run = "robot_rl.study.methods:refined"
    cell = Cell("s", "lpb", run, TOY, {}, "lpb", False, parameters, seed=1, episodes=8, first_seed=50)
    found = refined(cell, tmp_path)
    assert [row["seed"] for row in found["episodes"]] == list(range(50, 58))
    assert 0 < found["lpb.active_share"] < 1
    assert found["env_steps"] > 0


def test_lpb_with_eta_0_repeats_the_base_to_the_bit(trained, barrier_run) -> None:
    refiner, base = load_refiner(barrier_run), load(trained[1])
    refiner.hooks[0].eta = 0.0
    envs = [sim.make(TOY) for _ in range(4)]
    one, other = run_wave(envs, [1, 2, 3, 4], base), run_wave(envs, [1, 2, 3, 4], base, refiner)
    assert sum(episode.extra["lpb.active"].sum() for episode in other)
    for before, after in zip(one, other, strict=True):
        np.testing.assert_array_equal(before.action, after.action)


def test_the_same_seed_gives_the_same_barrier_and_a_control_another(trained, barrier_run, tmp_path) -> None:
    config = LpbConfig(**common(trained, tmp_path / "run"), eta=2.0, percentile=50)
    again = lpb(config)
    version = load_refiner(barrier_run).version
    assert load_refiner(again).version == version
    shuffled = lpb(replace(config, out=tmp_path / "control", targets="shuffled"))
    one, other = (load_refiner(folder).hooks[0] for folder in (again, shuffled))
    assert other.threshold == one.threshold
    assert not torch.equal(other.tensors()["targets"], one.tensors()["targets"])


@pytest.fixture(scope="module")
def of_two_tasks(tmp_path_factory):
    """Demonstrations of two tasks and one base that reads the text."""
    place = tmp_path_factory.mktemp("two")
    collect(CollectConfig(out=place / "demos", task=TWO_GOALS, episodes=20, workers=1))
    config = TrainConfig(
        data=place / "demos", out=place / "base", network=NETWORK, steps=60, batch=32, warmup=5, holdout=0
    )
    return place / "demos", train(config)


GOALS = ("go to the left goal", "go to the right goal")


def test_lpb_keeps_a_bank_for_each_task_of_its_base(of_two_tasks, tmp_path) -> None:
    assert load(of_two_tasks[1]).spec.reads_task
    config = LpbConfig(
        **{**common(of_two_tasks, tmp_path / "run"), "task": TWO_GOALS}, eta=2.0, percentile=50
    )
    run = lpb(replace(config, targets="shuffled"))
    hook = load_refiner(run).hooks[0]
    assert hook.texts.texts == GOALS
    assert set(hook.tensors()["owner"].tolist()) == {0, 1}
    own, other = (hook.tensors()["bank"][hook.tensors()["owner"] == task, 0] for task in (0, 1))
    assert float(own.mean()) < float(other.mean()), "those who go left are further to the left"
    found = evaluate(
        EvaluateConfig(policy=of_two_tasks[1], refiner=(run,), task=TWO_GOALS, episodes=8, workers=1)
    )
    assert set(found.by_text) == set(GOALS)
    with pytest.raises(
        ValueError, match="'go to the origin' is none of those that this refiner was fitted on"
    ):
        run_wave([sim.make(TOY)], [0], load(of_two_tasks[1]), load_refiner(run))


def test_reguide_finds_phases_for_each_task_of_its_base(of_two_tasks, tmp_path) -> None:
    settings = {**common(of_two_tasks, tmp_path / "run"), "task": TWO_GOALS}
    run = reguide(ReGuideConfig(**settings, absorb=(), phases=PhaseConfig(phases=2, clusters=3)))
    hook = load_refiner(run).hooks[0]
    assert (hook.texts.texts, hook.targets.tasks, hook.targets.count) == (GOALS, 2, 2)
    left, right = hook.targets.prototypes[:, 0, 0][[1, 3]]
    assert float(left) < float(right), "the last phase is at the task's own goal"


def test_rollouts_of_a_task_that_nobody_demonstrated_are_refused_before_the_fit(
    of_two_tasks, tmp_path
) -> None:
    with pytest.raises(ValueError, match="'go to the origin' is none of those"):
        lpb(LpbConfig(**common(of_two_tasks, tmp_path / "run")))
    assert not (tmp_path / "run" / "dynamics").exists()


@pytest.mark.slow
def test_an_interrupted_lpb_ends_with_the_same_barrier(trained, barrier_run, tmp_path, monkeypatch) -> None:
    config = LpbConfig(**common(trained, tmp_path / "run"), eta=2.0, percentile=50)
    monkeypatch.setattr("robot_rl.guide.lpb.calibrate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        lpb(config)
    monkeypatch.undo()
    assert load_refiner(lpb(replace(config, resume=True))).version == load_refiner(barrier_run).version


def absorb_config(trained, out, **more) -> ReGuideConfig:
    own = {
        "phases": PhaseConfig(phases=2, switch_decisions=1, restarts=2), "scale": 0.5, "successes": 3,
        "attempts": 40, "tune": TuneConfig(steps=20, warmup=5),
    }  # fmt: skip
    return ReGuideConfig(**common(trained, out), **(own | more))


@pytest.fixture(scope="module")
def absorbed(trained, tmp_path_factory):
    return reguide(absorb_config(trained, tmp_path_factory.mktemp("reguide") / "run"))


def test_rounds_train_on_exactly_the_guided_successes(trained, absorbed) -> None:
    result = json.loads((absorbed / "result.json").read_text())
    assert [row["kind"] for row in result["rounds"]] == ["fs", "ft"]
    assert [row["successes"] for row in result["rounds"]] == [3, 3]
    assert all("guided_share" in row for row in result["rounds"])
    assert result["base_hash_before"] == result["base_hash_after"] == load(trained[1]).hash()
    first, second = (
        json.loads((absorbed / f"round-{n}/policy/config.json").read_text())["config"] for n in (1, 2)
    )
    assert first["steps"] == 60, "from scratch as the base was trained"
    assert first["start"] is None
    assert (second["steps"], second["also_share"]) == (20, 0.8)
    assert second["start"].endswith("round-1/policy")
    assert len(second["also"]) == 2, "the successes of both rounds"
    assert json.loads((absorbed / "round-2/policy/result.json").read_text())["also"] == 6
    ids = [EpisodeStore(absorbed / f"round-{n}/episodes").ids() for n in (1, 2)]
    assert not set(ids[0]) & set(ids[1]), "each seed is used once"


def test_the_last_student_is_the_refiner_and_a_policy_of_its_own(trained, absorbed) -> None:
    refined, base = load_refiner(absorbed), load(trained[1])
    assert not refined.hooks
    envs = [sim.make(TOY) for _ in range(4)]
    one = run_wave(envs, range(4), base, refined)
    other = run_wave(envs, range(4), load(absorbed / "round-2/policy"))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.action, b.action)


def test_without_guidance_it_is_self_distillation_at_equal_numbers(trained, tmp_path) -> None:
    run = reguide(absorb_config(trained, tmp_path / "run", guide=False, absorb=("ft",)))
    (row,) = json.loads((run / "result.json").read_text())["rounds"]
    assert row["successes"] == 3
    assert not (run / "episodes").exists(), "no dynamics, so no rollouts for them"
    assert not any("reguide.active" in episode.extra for episode in EpisodeStore(run / "round-1/episodes"))
    with pytest.raises(ValueError, match="nothing would be refined"):
        absorb_config(trained, tmp_path, guide=False, absorb=())


def test_without_rounds_the_guidance_itself_is_the_refiner(trained, tmp_path) -> None:
    run = reguide(absorb_config(trained, tmp_path / "run", absorb=()))
    refiner = load_refiner(run)
    assert refiner.student is None
    assert len(refiner.hooks) == 1
    assert "guided_share" in json.loads((run / "result.json").read_text())["trial"]


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_student(trained, absorbed, tmp_path, monkeypatch) -> None:
    config, calls = absorb_config(trained, tmp_path / "run"), []

    def interrupt(training):
        if calls:
            raise KeyboardInterrupt
        calls.append(training)
        return train(training)

    monkeypatch.setattr(absorbing, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        reguide(config)
    monkeypatch.undo()
    again = reguide(replace(config, resume=True))
    assert load_refiner(again).version == load_refiner(absorbed).version


def test_a_policy_that_is_closed_or_cannot_be_saved_is_refused(trained, tmp_path, monkeypatch) -> None:
    from robot_rl import methods
    from tests.robot_rl.scripted import RampPolicy

    for name in ("lpb", "reguide"):
        with pytest.raises(PolicyError, match="opens its denoising"):
            methods.check_base(RampPolicy(), methods.find(name))
    monkeypatch.setattr(one_pass, "load_base", lambda *_: RampPolicy())
    with pytest.raises(TypeError, match="cannot be a refiner's student"):
        reguide(absorb_config(trained, tmp_path / "run"))
    with pytest.raises(TypeError, match="how to train one like it is not known"):
        base_recipe(tmp_path, RampPolicy(), tmp_path)


def test_a_base_that_never_succeeds_gives_nothing_to_learn_from(trained, tmp_path) -> None:
    config = absorb_config(trained, tmp_path / "run", guide=False, attempts=4, successes=2)
    with pytest.raises(RuntimeError, match="nothing to learn from"):
        reguide(replace(config, options={"limit": 1}))
