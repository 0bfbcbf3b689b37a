"""Tasks on other people's simulators go the whole way from demonstrations to a judged policy."""

import json

import pytest

from robot_rl.cli import main


@pytest.mark.slow
@pytest.mark.timeout(600)  # robosuite runs at 200 control steps per second, less on a busy machine
@pytest.mark.parametrize("task", ["pusht", "robosuite-can"])
def test_demonstrations_make_a_policy_that_is_evaluated(tmp_path, task):
    demos, base, out = tmp_path / "demos", tmp_path / "base", tmp_path / "out.json"
    one = ["--workers", "1"]
    assert main(["collect", "--task", task, "--episodes", "4", "--out", str(demos), *one]) == 0
    assert main(["train", "--data", str(demos), "--steps", "300", "--batch", "64", "--out", str(base)]) == 0
    asked = ["--task", task, "--policy", str(base), "--episodes", "2", "--seed", "25000000"]
    assert main(["evaluate", *asked, *one, "--json", str(out)]) == 0
    episodes = json.loads(out.read_text())["episodes"]
    assert [episode["seed"] for episode in episodes] == [25_000_000, 25_000_001]
