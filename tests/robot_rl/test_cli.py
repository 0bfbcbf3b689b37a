import json
import os
import re
import subprocess
import sys

import pytest

from robot_rl.cli import COMMANDS, main
from robot_rl.cli.output import say
from tests.robot_rl.toy import TOY, TWO_TOYS, save_toy_policy


def test_help_names_every_command_and_needs_no_torch():
    code = (
        "import sys, robot_rl.cli as c; c.main(['--help']);"
        "sys.exit(bool({'torch', 'mujoco', 'numpy', 'tyro'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(f"\n    {name} " in done.stdout for name in COMMANDS)


def test_threads_are_limited_before_anything_is_imported():
    code = "import os, robot_rl.cli as c; c.main([]); print(os.environ['OMP_WAIT_POLICY'])"
    clean = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.endswith("PASSIVE\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["evalaute"], "unknown command 'evalaute': did you mean evaluate?"),
        (["evaluate", "--polcy", "x"], "unknown option '--polcy': did you mean --policy"),
        (["refine", "residal"], "unknown method 'residal': did you mean residual"),
        (["study", "tabel", "x.toml"], "unknown sub-command 'tabel': did you mean table?"),
        (["train", "--network.hiden", "3"], "did you mean --network.hidden"),
    ],
)
def test_unknown_names_get_a_near_miss_hint_and_exit_code_2(words, hint, capsys):
    assert main(words) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert "Traceback" not in message


def test_an_unknown_task_gets_a_hint_too(tmp_path, capsys):
    words = [
        "collect",
        "--task",
        "peg-insrt",
        "--episodes",
        "1",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "x"),
    ]
    assert main(words) == 1
    assert "did you mean peg-insert" in capsys.readouterr().err


def test_our_errors_are_one_line_and_debug_shows_where_they_come_from(tmp_path, capsys):
    words = ["report", str(tmp_path / "nothing")]
    assert main(words) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ValueError, match="holds no run"):
        main([*words, "--debug"])


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("collect", "the same command with --resume"),
        ("study", "the same command goes on"),
        ("data", "the same command can be called again"),
    ],
)
def test_ctrl_c_ends_with_130_and_says_how_to_go_on(monkeypatch, capsys, command, how):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"robot_rl.cli.{command}.run", interrupted)
    assert main([command]) == 130
    said = capsys.readouterr().err
    assert how in said
    assert ("--resume" in said) == (command == "collect")


@pytest.mark.parametrize("command", ["collect", "evaluate", "report", "view", "doctor", "train", "demo"])
def test_every_option_is_explained(command, capsys):
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: robot-rl {command}")


def test_collect_and_evaluate_end_to_end(tmp_path, capsys):
    common = ["--task", TOY, "--workers", "1", "--episodes", "3"]
    assert main(["collect", *common, "--out", str(tmp_path / "demos")]) == 0
    assert "3 episodes in" in capsys.readouterr().out
    policy = str(save_toy_policy(tmp_path / "policy"))
    out = tmp_path / "out.json"
    assert main(["evaluate", *common, "--policy", policy, "--seed", "5", "--json", str(out)]) == 0
    assert "of 3 episodes succeeded (95 % interval" in capsys.readouterr().out
    assert [row["seed"] for row in json.loads(out.read_text())["episodes"]] == [5, 6, 7]


def test_evaluate_prints_a_line_per_text_where_there_are_several(tmp_path, capsys):
    policy = str(save_toy_policy(tmp_path / "policy"))
    asked = ["evaluate", "--policy", policy, "--episodes", "12", "--workers", "1"]
    for task, texts in ((TOY, []), (TWO_TOYS, ["left", "right"])):
        assert main([*asked, "--task", task]) == 0
        said = capsys.readouterr().out
        assert re.findall(r"come from the (left|right): \d+\.\d% of \d+ episodes \(95", said) == texts


def test_view_writes_a_recording_where_there_is_no_display(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rerun")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "--task", TOY, "--workers", "1", "--episodes", "1", "--out", "demos"]) == 0
    assert main(["view", "demos"]) == 0
    assert list(tmp_path.glob("outputs/view/*.rrd"))


def test_a_study_runs_and_makes_its_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path.cwd()))
    study = {
        "name": "s",
        "tier": 2,
        "seeds": [0],
        "episodes": 100,
        "tasks": [{"name": "reach"}],
        "methods": [
            {
                "name": "m",
                "run": "tests.robot_rl.study.toy_methods:coin",
                "parameters": {"share": 0.5},
                "core_minutes": 0.01,
            }
        ],
        **{name: str(tmp_path / name) for name in ("results", "scratch", "docs")},
    }
    file = tmp_path / "s.json"
    file.write_text(json.dumps(study))
    assert main(["study", "run", str(file), "--minutes", "2"]) == 0
    assert "1 of 1 cells are finished" in capsys.readouterr().out
    assert main(["study", "table", str(file)]) == 0
    assert "| m | 50.0 % |" in (tmp_path / "docs/s.md").read_text()


def test_training_ends_with_where_the_policy_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("robot_rl.cli.train.train", lambda config: config.out)
    assert main(["train", "--data", str(tmp_path), "--out", "outputs/base"]) == 0
    said = capsys.readouterr().out
    assert said == "policy in outputs/base\nnext: robot-rl evaluate --policy outputs/base --task TASK\n"
    (tmp_path / "config.json").write_text(json.dumps({"config": {"task": "reach"}}))  # as `collect` writes it
    assert main(["train", "--data", str(tmp_path), "--out", "outputs/base"]) == 0
    assert capsys.readouterr().out.endswith("--policy outputs/base --task reach\n")


def test_the_demo_ends_with_both_rates_and_the_page(tmp_path, monkeypatch, capsys):
    arm = {"success_rate": 0.25, "episodes": [{}, {}, {}, {}]}
    result = {"base": arm, "refined": {**arm, "success_rate": 0.75}, "env_steps": 1500}
    (tmp_path / "result.json").write_text(json.dumps(result))
    monkeypatch.setattr("robot_rl.cli.demo.run_demo", lambda config: tmp_path / "report.html")
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert "4 held-out seeds: 25.0% before, 75.0% after 1,500 environment steps" in said
    assert str(tmp_path / "report.html") in said


def test_a_reader_that_leaves_early_is_no_error_of_ours():
    command = [sys.executable, "-u", "-m", "robot_rl.cli", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_path_with_brackets_is_printed_as_it_is(capsys):
    say("outputs/[bold]run/[red]x[/] ", ("90 %", "bold"))
    assert capsys.readouterr().out == "outputs/[bold]run/[red]x[/] 90 %\n"


def test_a_task_between_colons_is_printed_as_it_is(capsys):
    say("my_tasks:One: done")
    assert capsys.readouterr().out == "my_tasks:One: done\n"
