"""A tiny refinement from start to end: what it promises, and that an interruption changes nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sim
from data.statistics import compute_statistics
from data.store import EpisodeStore
from hardware.action_spec import ActionGroup, ActionSpec
from policies import checkpoint
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from robot_rl.control import run_wave
from robot_rl.correct.exploration import reach
from robot_rl.correct.residual_learner import ResidualLearnerConfig
from robot_rl.correct.residual_recipe import RefineConfig, ResidualRecipe, refine
from robot_rl.critics.curves import open_critic
from robot_rl.online import OnlineRun, Progress, refine_online
from robot_rl.parts import load_refiner
from robot_rl.progress import stage
from robot_rl.refiner import Refiner
from robot_rl.runs import RunDirectory

KEYS = ("observation.state",)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained flow policy for PushDisc: wrong, but of the right shape."""
    task = sim.make("push-disc").unwrapped
    torch.manual_seed(0)
    config = FlowConfig(inputs=KEYS, horizon=8, executed_steps=4, hidden=32, layers=1, steps=2)
    policy = FlowPolicy(config, task.features, task.action_spec)
    rng = np.random.default_rng(0)
    state = rng.uniform(-0.1, 0.3, (200, *task.features[KEYS[0]].shape))
    policy.fit(compute_statistics({KEYS[0]: state, "action": rng.uniform(-0.03, 0.03, (200, 2))}))
    folder = tmp_path_factory.mktemp("base")
    checkpoint.save(policy, folder)
    return folder


def _config(base: Path, out: Path) -> RefineConfig:
    learner = ResidualLearnerConfig(critics=2, width=16, batch=16)
    return RefineConfig(
        policy=base, out=out, task="push-disc", env_steps=500, warmup_steps=100, rows=2, checkpoint_rounds=2,
        updates_per_step=0.2, learner=learner,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return refine(_config(base, tmp_path_factory.mktemp("refined") / "run"))


def test_leaves_the_base_alone_and_says_what_it_took(base: Path, finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert result["base_hash_before"] == result["base_hash_after"] == checkpoint.load(base).hash()
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == result["env_steps"] <= 500
    assert result["refiner_version"] == load_refiner(finished).version


def test_what_was_learned_differs_from_the_base_within_its_bound(base: Path, finished: Path) -> None:
    refiner = load_refiner(finished)
    (episode,) = run_wave([sim.make("push-disc")], [7], checkpoint.load(base), refiner)
    correction = np.abs(episode.action_policy - episode.action_base)
    scale = refiner.correct.network.scale.numpy()
    assert correction.any()
    assert (correction <= scale + 1e-9).all()


def test_the_critics_of_a_finished_run_can_be_shown(finished: Path) -> None:
    run = RunDirectory.open(finished)
    assert run.checkpoints()[-1].step == run.read_json("result.json")["env_steps"]
    store = EpisodeStore(finished / "episodes")
    episode = store.read(store.ids()[-1])
    curves = open_critic(finished).value_curves(episode)
    kinds = ("min", "mean", "critic0", "critic1")
    assert list(curves) == [f"{action}/{kind}" for action in ("executed", "base") for kind in kinds]
    assert all(curve.shape == (len(episode),) and np.isfinite(curve).all() for curve in curves.values())
    both = np.stack([curves["executed/critic0"], curves["executed/critic1"]])
    np.testing.assert_array_equal(curves["executed/min"], both.min(0))
    np.testing.assert_allclose(curves["executed/mean"], both.mean(0))
    assert (both[0] != both[1]).any()
    assert (curves["executed/critic0"] != curves["base/critic0"]).any()


@pytest.mark.parametrize(
    "waves", [pytest.param(1, marks=pytest.mark.slow), 5, pytest.param(8, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_ends_with_the_same_refiner(
    base: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waves: int
) -> None:
    """Stopped in the warm-up, before a checkpoint's end, and between two checkpoints."""
    config, wave = _config(base, tmp_path / "run"), OnlineRun._wave
    count = 0

    def interrupt(self, *arguments):
        nonlocal count
        count += 1
        if count > waves:
            raise KeyboardInterrupt
        return wave(self, *arguments)

    monkeypatch.setattr(OnlineRun, "_wave", interrupt)
    with pytest.raises(KeyboardInterrupt):
        refine(config)
    monkeypatch.undo()
    refine(replace(config, resume=True))
    assert load_refiner(tmp_path / "run").version == load_refiner(finished).version


class OnPolicy(ResidualRecipe):
    overlapped = False


def test_on_policy_a_wave_is_collected_with_the_weights_that_its_round_learned(
    base: Path, finished: Path, tmp_path: Path
) -> None:
    """Beside the learner the second wave has the weights of the first round, else the first wave has."""
    config = replace(_config(base, tmp_path / "run"), env_steps=200)
    alone = refine_online(config, "residual", OnPolicy)
    beside, after = (
        [episode.refiner_version for episode in EpisodeStore(run / "episodes")][4::2]  # two warm-up waves
        for run in (finished, alone)
    )
    assert after[0] == beside[1] != beside[0]


def test_without_a_warm_up_one_wave_is_still_seen_before_learning(base: Path, tmp_path: Path) -> None:
    refined = refine(replace(_config(base, tmp_path / "run"), env_steps=160, warmup_steps=0))
    rows = [json.loads(line) for line in (refined / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["residual_rms"] == 0
    assert rows[1]["critic_loss"] > 0


def test_a_run_stopped_after_its_last_checkpoint_only_has_to_finish(
    base: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(OnlineRun, "_finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        refine(_config(base, tmp_path / "run"))
    monkeypatch.undo()
    monkeypatch.setattr(OnlineRun, "_wave", interrupt)  # nothing is collected again
    refine(replace(_config(base, tmp_path / "run"), resume=True))
    assert load_refiner(tmp_path / "run").version == load_refiner(finished).version


def test_a_changed_base_fails_the_run(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = OnlineRun._finish

    def disturb(self, *arguments):
        with torch.no_grad():
            next(self.policy.parameters()).add_(1e-3)
        return finish(self, *arguments)

    monkeypatch.setattr(OnlineRun, "_finish", disturb)
    with pytest.raises(RuntimeError, match="The base changed during refinement"):
        refine(replace(_config(base, tmp_path / "run"), env_steps=160))


def test_untrained_the_residual_repeats_the_base_bit_equal_on_20_seeds(base: Path, tmp_path: Path) -> None:
    """Through the live path of a whole refinement, before its first update."""
    config = replace(_config(base, tmp_path / "run"))
    with RunDirectory.create(config.out, {}, kind="refine") as run:
        refinement = OnlineRun(config, run, "residual", ResidualRecipe)
        with stage("test", None) as reporter:
            refiner = Refiner(correct=refinement._warm_up(Progress(), reporter))
    policy = checkpoint.load(base)
    envs = [sim.make("push-disc") for _ in range(4)]
    for first in range(0, 20, 4):
        seeds = range(first, first + 4)
        for one, other in zip(
            run_wave(envs, seeds, policy), run_wave(envs, seeds, policy, refiner), strict=True
        ):
            np.testing.assert_array_equal(one.action, other.action)
            for key, value in one.observations.items():
                np.testing.assert_array_equal(value, other.observations[key])


def test_a_correction_can_cancel_a_delta_and_spans_half_the_range_of_a_target() -> None:
    """Base actions of 1 .. 3: as deltas they reach 3, as targets half of 2, and the gripper stays alone."""
    spec = ActionSpec(
        (
            ActionGroup("arm", 1, "delta", "position", "base", unit="m", low=-4, high=4),
            ActionGroup("torso", 1, "absolute", "joint", "base", unit="rad", low=-4, high=4),
            ActionGroup("hand", 1, "absolute", "gripper", unit="m", low=-4, high=4),
        ),
        20.0,
    )
    actions = np.linspace(1, 3, 10_001)[:, None] * np.array([-1.0, 1.0, 1.0])
    np.testing.assert_allclose(reach(actions, spec), [2.98, 0.98, 0.0], atol=1e-6)


@pytest.mark.parametrize("wrong", [{"updates_per_step": 2.0}, {"warmup_steps": 500}, {"scale_fraction": 0.0}])
def test_senseless_settings_are_refused(base: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(_config(base, Path("unused")), **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"zeroed": ("observation.wrnch",)}, r"zeroed names \['observation\.wrnch'\], which are not read"),
        ({"history_keys": ("observation.force",)}, r"reads 'observation\.force', which is not among"),
        ({"rows": 40}, r"the warm-up and one wave may take 100 \+ 1000"),
    ],
)
def test_what_does_not_fit_the_task_is_refused_before_the_warm_up(
    base: Path, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        refine(replace(_config(base, tmp_path / "run"), **wrong))
    assert list((tmp_path / "run").iterdir()) == []
