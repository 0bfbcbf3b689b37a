from dataclasses import dataclass, replace

import pytest

from robot_rl.method_config import MethodConfig
from robot_rl.methods import Method
from robot_rl.parts import save_refiner
from robot_rl.refiner import Refiner
from robot_rl.study.cell import compute, learning_steps, read_cell
from robot_rl.study.methods import base, refined, residual
from robot_rl.study.plan import Cell, StudyError
from tests.robot_rl.toy import TOY, save_toy_policy


@dataclass(frozen=True)
class NothingConfig(MethodConfig):
    """Of a method that adds nothing."""

    strength: float = 1.0


def nothing(config):
    save_refiner(config.out / "refiner", Refiner(), {"strength": config.strength})
    return config.out


NOTHING = Method("nothing", "adds nothing", NothingConfig, nothing)
HERE = f"{__name__}:NOTHING"


def cell(**parameters):
    return Cell(
        study="toy",
        method="base",
        run="robot_rl.study.methods:base",
        task=TOY,
        options={"limit": 6},
        arm="default",
        control=False,
        parameters=parameters,
        seed=0,
        episodes=5,
        first_seed=20,
    )


def test_the_base_alone_is_evaluated_on_the_cells_seeds(tmp_path):
    made = cell(policy=str(save_toy_policy(tmp_path / "policy")))
    compute(made, tmp_path / "results", tmp_path / "scratch")
    finished = read_cell(made, tmp_path / "results")
    assert len(finished.outcomes) == 5
    assert max(finished.steps) <= 6
    assert len(finished.facts["base_hash"]) == 64


def test_what_a_method_does_not_know_is_refused(tmp_path):
    with pytest.raises(StudyError, match="policy is missing"):
        base(cell(), tmp_path)
    with pytest.raises(StudyError, match="'zeroed'"):
        base(cell(policy="x", zeroed=["observation.wrench"]), tmp_path)
    with pytest.raises(StudyError, match=r"'seed'.* follow from the study"):
        residual(cell(policy="x", seed=3), tmp_path)
    with pytest.raises(StudyError, match="'widht'"):
        residual(cell(policy="x", widht=3), tmp_path)


def test_any_method_is_a_cell_evaluated_on_the_same_seeds_as_the_base(tmp_path):
    """The folder of the base is named by the training seed, as each has its own."""
    save_toy_policy(tmp_path / "policy-0")
    policy = str(tmp_path / "policy-{seed}")
    more = {"method": HERE, "strength": 2.0, "evaluation": {"gain": 0.0}}
    bare, added = (
        replace(cell(policy=policy, **parameters), run=f"robot_rl.study.methods:{run}")
        for run, parameters in (("base", {}), ("refined", more))
    )
    for one in (bare, added):
        compute(one, tmp_path / "results", tmp_path / "scratch")
    one, other = (read_cell(each, tmp_path / "results") for each in (bare, added))
    assert (one.outcomes, one.steps) == (other.outcomes, other.steps)
    assert learning_steps(added) == 0


def test_what_a_method_of_a_cell_does_not_know_is_refused(tmp_path):
    with pytest.raises(StudyError, match="parameter method is missing"):
        refined(cell(policy="x"), tmp_path)
    with pytest.raises(StudyError, match="'dslr'; did you mean 'dsrl'"):
        refined(cell(policy="x", method="dslr"), tmp_path)
    with pytest.raises(StudyError, match=r"\['strenght'\] are none of NothingConfig"):
        refined(cell(policy="x", method=HERE, strenght=2.0), tmp_path)
    with pytest.raises(StudyError, match=r"evaluation names \['seed'\]"):
        base(cell(policy="x", evaluation={"seed": 3}), tmp_path)


def test_the_steps_of_a_method_are_its_own_default():
    one = replace(cell(policy="x", method="dsrl"), run="robot_rl.study.methods:refined")
    assert learning_steps(one) == 30_000
