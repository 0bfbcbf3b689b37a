import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.store import EpisodeStore
from robot_rl.study import bases
from robot_rl.study.bases import Cloned, Recorded, demonstrations, read_table
from robot_rl.study.cell import compute, read_cell
from robot_rl.study.methods import SHELF, base, refined
from robot_rl.study.plan import Cell, StudyError
from tests.robot_rl.toy import TOY

NETWORK = {
    "inputs": ["observation.state"],
    "horizon": 4,
    "executed_steps": 2,
    "hidden": 16,
    "layers": 1,
    "steps": 2,
}
TRAIN = {"network": NETWORK, "steps": 5, "batch": 16, "warmup": 1, "holdout": 0.0}
BASE = {"demonstrations": 3, "train": TRAIN}


def cell(seed=0, **parameters):
    return Cell(
        study="toy",
        method="base",
        run="robot_rl.study.methods:base",
        task=TOY,
        options={"limit": 9},
        arm="default",
        control=False,
        parameters=parameters,
        seed=seed,
        episodes=3,
        first_seed=20,
    )


def seeds_of(run):
    return [episode.seed for episode in EpisodeStore(run / "episodes")]


def test_cells_of_one_training_seed_share_a_base_and_others_have_their_own(tmp_path):
    one, same, other = cell(base=BASE), cell(base=BASE, device="cpu"), cell(seed=1, base=BASE)
    for each in (one, same, other):
        compute(each, tmp_path / "results", tmp_path / "scratch")
    hashes = [read_cell(each, tmp_path / "results").facts["base_hash"] for each in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    made = sorted(path.name.split("-")[0] for path in (tmp_path / "scratch" / "toy" / SHELF).iterdir())
    assert made == ["base", "base", "demonstrations", "demonstrations"]


def test_what_is_on_the_shelf_is_not_made_again(tmp_path, monkeypatch):
    made = demonstrations(cell(), tmp_path, Recorded(2))
    monkeypatch.setattr(bases, "collect", lambda _: pytest.fail("recorded twice"))
    assert demonstrations(cell(), tmp_path, Recorded(2)) == made


def test_demonstrations_follow_from_task_seed_and_options(tmp_path):
    default = demonstrations(cell(), tmp_path, Recorded(2))
    plain = demonstrations(cell(), tmp_path, Recorded(2, {}))
    further = demonstrations(cell(seed=3), tmp_path, Recorded(2))
    assert len({default, plain, further}) == 3
    assert json.loads((default / "config.json").read_text())["config"]["options"] == {"limit": 9}
    assert json.loads((plain / "config.json").read_text())["config"]["options"] == {}
    assert not set(seeds_of(default)) & set(seeds_of(further))


def test_a_training_that_was_stopped_is_gone_on_with(tmp_path, monkeypatch):
    real, calls = bases.train, []

    def stopped(config):
        calls.append(config.resume)
        if len(calls) == 1:
            config.out.mkdir()
            raise KeyboardInterrupt
        return real(config)

    monkeypatch.setattr(bases, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        bases.base(cell(), tmp_path, Cloned(2, train=TRAIN))
    policy = bases.base(cell(), tmp_path, Cloned(2, train=TRAIN))
    assert calls == [False, True]
    assert (policy / "result.json").exists()


def test_a_method_is_given_the_bases_demonstrations_or_its_own(tmp_path, monkeypatch):
    """Looked at in the configuration that the method gets."""
    seen = []
    monkeypatch.setattr("robot_rl.study.methods._evaluation", lambda *_: {})
    monkeypatch.setattr("robot_rl.guide.lpb.lpb", lambda config: seen.append(config) or tmp_path)
    parameters = {"method": "lpb", "base": BASE}
    for more in ({}, {"data": {"demonstrations": 2, "options": {}}}, {"data": "elsewhere"}):
        refined(replace(cell(**parameters, **more), run="robot_rl.study.methods:refined"), tmp_path / "cell")
    shared, own, named = (config.data for config in seen)
    assert len(seeds_of(shared)) == 3
    assert len(seeds_of(own)) == 2
    assert named == Path("elsewhere")
    assert len({config.policy for config in seen}) == 1


def test_wrong_tables_are_refused_before_anything_is_made(tmp_path):
    with pytest.raises(
        StudyError, match="base is 'outputs/base': give a table of demonstrations, options, train"
    ):
        base(cell(base="outputs/base"), tmp_path / "cell")
    with pytest.raises(StudyError, match="name base and policy"):
        base(cell(base=BASE, policy="x"), tmp_path / "cell")
    with pytest.raises(StudyError, match=r"base.train names \['seed', 'stesp'\]"):
        base(cell(base={"train": {"seed": 1, "stesp": 3}}), tmp_path / "cell")
    with pytest.raises(StudyError, match="parameter data: Recorded has no field 'demos'"):
        read_table(Recorded, "data", {"demos": 3})
    with pytest.raises(StudyError, match="'widht'"):
        refined(cell(base=BASE, method="lpb", widht=3), tmp_path / "cell")
    assert not list(tmp_path.iterdir())


def test_the_task_of_the_evaluation_may_be_another_variant(tmp_path):
    """One step is too few to arrive."""
    plain, short = cell(base=BASE), cell(base=BASE, evaluation={"options": {"limit": 1}})
    for each in (plain, short):
        compute(each, tmp_path / "results", tmp_path / "scratch")
    assert set(read_cell(short, tmp_path / "results").steps) == {1}
    assert max(read_cell(plain, tmp_path / "results").steps) > 1
