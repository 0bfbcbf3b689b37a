import json
from pathlib import Path

import pytest

from policies.checkpoint import load
from robot_rl.correct.residual_learner import ResidualLearnerConfig
from robot_rl.demo import DemoConfig
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.seeds import TRAINING_SEEDS
from robot_rl.study import peg_insert
from robot_rl.study.constant_offset import ConstantOffset
from robot_rl.study.plan import Cell, StudyError, cells, read_study
from tests.robot_rl.toy import TOY

TINY = {"demonstrations": 3, "base_steps": 5}
ON_TOY = {**TINY, "demonstrations": 40, "inputs": ["observation.state"]}
FILE = Path(__file__).parents[3] / "studies" / "foundation.toml"


def cell(parameters, task=TOY, seed=7, episodes=8):
    return Cell("s", "m", "a:b", task, {}, "default", False, parameters, seed, episodes, 20_000)


def test_the_base_is_judged_on_the_seeds_of_the_study_and_equal_for_equal_training_seeds(tmp_path):
    one = peg_insert.base(cell(ON_TOY), tmp_path / "one")
    again = peg_insert.base(cell({**ON_TOY, "env_steps": 4077}), tmp_path / "two")
    other = peg_insert.base(cell(ON_TOY, seed=8), tmp_path / "three")
    assert [row["seed"] for row in one["episodes"]] == list(range(20_000, 20_008))
    assert one == again
    assert other["base_hash"] != one["base_hash"]


def test_a_stopped_cell_goes_on_from_its_folder(tmp_path, monkeypatch):
    first = peg_insert.base(cell(ON_TOY), tmp_path)
    monkeypatch.setattr(peg_insert, "evaluate", lambda config: pytest.fail("evaluated twice"))
    assert peg_insert.base(cell(ON_TOY), tmp_path) == first


def test_the_refinement_is_the_demos_with_the_parameters_over_it(tmp_path, monkeypatch):
    asked = []

    def refine(config):
        asked.append(config)
        save_refiner(config.out / "refiner", Refiner(correct=ConstantOffset((0.0, 0.0))))
        (config.out / "result.json").write_text(json.dumps({"env_steps": 950, "episodes": 80}))
        return config.out

    monkeypatch.setattr(peg_insert, "refine", refine)
    zeroed = ["observation.state"]
    extra = {"env_steps": 1000, "warmup_steps": 100, "zeroed": zeroed, "learner": {"shuffle_rewards": 8}}
    found = peg_insert.refined(cell({**ON_TOY, **extra}), tmp_path)
    (config,) = asked
    assert (config.policy, config.seed, config.env_steps) == (tmp_path / "base", 7, 1000)
    assert (config.scale_fraction, config.zeroed) == (DemoConfig().scale_fraction, ("observation.state",))
    assert config.learner == ResidualLearnerConfig(shuffle_rewards=8)
    assert (found["env_steps"], found["refinement_episodes"]) == (950, 80)
    assert found["base_hash"] == load(tmp_path / "base").hash()
    assert len(found["episodes"]) == 8


def test_the_offset_is_chosen_on_the_training_seeds(tmp_path, monkeypatch):
    seeds = []

    def evaluate(config):
        seeds.append(config.seed)
        offset = load_refiner(config.refiner[0]).correct.offset[0]
        content = {"success_rate": offset, "episodes": [], "base_hash": "h"}
        config.json.write_text(json.dumps(content))

    monkeypatch.setattr(peg_insert, "evaluate", evaluate)
    offsets = [[0.1, 0.0], [0.3, 0.0], [0.2, 0.0]]
    found = peg_insert.constant(cell({**ON_TOY, "offsets": offsets, "trials": 16}), tmp_path)
    assert (found["offset_m"], found["trial_success_rate"]) == ("[0.3, 0.0]", 0.3)
    assert seeds == [TRAINING_SEEDS + 7_000_000] * 3 + [20_000]


def test_the_spiral_runs_on_the_real_task(tmp_path):
    found = peg_insert.spiral(cell({**TINY, "pitch_m": 0.002}, "peg-insert", episodes=2), tmp_path)
    assert [row["seed"] for row in found["episodes"]] == [20_000, 20_001]
    assert load_refiner(tmp_path / "spiral").correct.config.pitch_m == 0.002


@pytest.mark.parametrize("function", ["base", "refined"])
def test_unknown_parameters_are_named(function, tmp_path):
    with pytest.raises(StudyError, match=r"\['pich_m'\] mean nothing"):
        getattr(peg_insert, function)(cell({**ON_TOY, "pich_m": 1.0}), tmp_path)
    with pytest.raises(StudyError, match=r"\['seed'\] follow from the study"):
        getattr(peg_insert, function)(cell({**ON_TOY, "seed": 1}), tmp_path)


def test_the_study_of_the_demo_is_a_row_per_rival_and_fits_its_budget():
    study = read_study(FILE)
    first = [f"{one.method}, {one.arm}" for one in cells(study) if one.seed == 10]
    assert first == [
        "refined, default",
        "refined, touch and force zeroed",
        "refined, shuffled rewards",
        "base, default",
        "best constant offset, default",
        "spiral search, default",
        "base trained with force and touch, default",
        "more demonstrations, default",
    ]
    minutes = {method.name: method.core_minutes for method in study.methods}
    assert sum(minutes[one.method] for one in cells(study)) / 60 < study.budget_core_hours
