import pytest

from robot_rl.study.cell import compute, read_cell
from robot_rl.study.methods import base, residual
from robot_rl.study.plan import Cell, StudyError
from tests.robot_rl.toy import TOY, save_toy_policy


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
