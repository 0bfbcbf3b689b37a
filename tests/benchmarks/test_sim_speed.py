import importlib
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.benchmarks.conftest import BENCHMARKS

TINY = ["--tasks", "push-disc", "--steps", "30", "--peer-steps", "2", "--repeats", "1"]


@pytest.fixture
def sim_speed():
    return importlib.import_module("sim_speed")


def run(sim_speed, path, *options):
    sim_speed.main([*TINY, *options, "--json", str(path)])
    return json.loads(path.read_text())


def test_writes_a_figure_per_task_and_kind_of_action(sim_speed, tmp_path):
    written = run(sim_speed, tmp_path / "speed.json", "--peers")

    assert written["benchmark"] == "sim_speed"
    names = [figure["name"] for figure in written["figures"]]
    assert names == ["PushDisc, random actions", "PushDisc, expert actions"]
    for figure in written["figures"]:
        assert figure["per_second"] > 0.0
        assert figure["ratio"] is None
        assert figure["settings"]["steps"] == 30
    assert written["skipped"] == {}


def test_says_why_a_missing_peer_was_left_out(sim_speed, tmp_path, monkeypatch):
    monkeypatch.setattr(sim_speed.importlib.util, "find_spec", lambda _: None)
    written = run(sim_speed, tmp_path / "speed.json", "--peers", "Lift")
    assert written["skipped"] == {"robosuite Lift": "robosuite is not installed"}
    assert len(written["figures"]) == 2


def test_steps_exactly_as_many_times_as_asked(sim_speed):
    harness = importlib.import_module("harness")
    for actions in ("random", "expert"):
        assert sim_speed.GymnasiumStepper("push-disc", actions, 61).turn(harness.Stopwatch()) == 61


@pytest.mark.slow
def test_compares_with_robosuite(tmp_path):
    if importlib.util.find_spec("robosuite") is None:
        pytest.skip("robosuite is not installed")
    path = tmp_path / "speed.json"
    command = [
        sys.executable,
        str(BENCHMARKS / "sim_speed.py"),
        *TINY,
        "--peers",
        "Lift",
        "--json",
        str(path),
    ]
    # In a process of its own: robosuite changes warnings, logging and GL backend of the one that imports it.
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    written = json.loads(path.read_text())
    ours, theirs = written["figures"][0], written["figures"][-1]
    assert theirs["name"] == ours["peer"] == "robosuite Lift"
    assert ours["ratio"] == pytest.approx(ours["per_second"] / theirs["per_second"])
