"""The examples do what they say, in shorter runs than a reader's."""

from __future__ import annotations

import importlib
import re

import pytest

from robot_rl.cli import main
from tests.conftest import REPOSITORY


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Run an example by its name with an output folder of its own; what it printed, without colours."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(name, *words):
        importlib.import_module(name).main(["--out", str(tmp_path / "out"), *words])
        return capsys.readouterr().out

    return run


def test_a_refiner_of_ones_own_beats_the_bare_policy(example, tmp_path):
    printed = example("add_refiner", "--episodes", "20")
    counts = re.search(r"(\d+) of 20 before, (\d+) after", printed)
    assert counts is not None
    assert int(counts[2]) > int(counts[1])
    assert (tmp_path / "out/refiner.json").exists()


def test_a_method_of_ones_own_is_run_like_ours(example, tmp_path, capsys):
    printed = example("add_method", "--episodes", "20")
    counts = re.search(r"(\d+) of 20 before, (\d+) after", printed)
    assert counts is not None
    assert int(counts[2]) > int(counts[1])
    words = ["--policy", str(tmp_path / "out/policy"), "--out", str(tmp_path / "again"), "--episodes", "10"]
    assert main(["refine", "add_method:METHOD", *words]) == 0
    assert "--task refine_my_task:Dock" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "again/refiner/refiner.json").exists()


def test_an_untried_refiner_changes_nothing(example):
    example("add_refiner", "--episodes", "10")
    module = importlib.import_module("add_refiner")
    refiner = module.robot_rl.Refiner(correct=module.SteerHarder())
    envs = [module.Dock()]
    bare, refined = (module.robot_rl.run_wave(envs, [7], module.Autopilot(), r)[0] for r in (None, refiner))
    assert refined.action.tobytes() == bare.action.tobytes()


def test_the_denoising_is_shown_step_by_step(example):
    printed = example("inspect_denoising", "--steps", "50", "--episodes", "4", "--chunks", "8")
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    assert len(rows) == 10
    assert "0.00" in rows[-1], "the last clean estimate is the final chunk"
    assert "100%" in rows[-1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_task_of_ones_own_is_refined_until_it_works(example):
    printed = example("refine_my_task")
    rates = re.search(r"autopilot (\d+)%, refined (\d+)%", printed)
    assert rates is not None
    assert int(rates[2]) >= int(rates[1]) + 10
