import dataclasses
import json
import shutil

import pytest

from robot_rl.metrics import MetricsLog, read_metrics
from robot_rl.provenance import config_differences, config_hash, versions
from robot_rl.runs import RunDirectory, RunError


@dataclasses.dataclass(frozen=True)
class Learner:
    width: int = 128


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    out: str = "outputs/x"
    learner: Learner = dataclasses.field(default_factory=Learner)


def save(run, step, text="weights"):
    with run.checkpoint(step, base_hash="abc", env_steps=10 * step) as folder:
        (folder / "weights.txt").write_text(text)


def test_hash_ignores_where_a_run_lies_and_key_order_but_no_setting():
    assert config_hash({"seed": 1, "out": "a"}) == config_hash({"out": "b", "seed": 1})
    assert config_hash({"seed": 1}) != config_hash({"seed": 2})


def test_differences_name_nested_fields():
    old, new = {"seed": 1, "learner": {"width": 128}}, {"seed": 1, "learner": {"width": 256}}
    assert config_differences(old, new) == ["learner.width: 128 there, 256 now"]


def test_versions_name_python_and_the_simulator():
    assert {"python", "mujoco", "torch", "robot-rl"} <= set(versions())


def test_a_run_holds_configuration_metrics_and_tensorboard_events(tmp_path):
    with RunDirectory.create(tmp_path / "run", Config(seed=3), kind="train") as run:
        run.log(1, {"loss": 0.5, "note": "warm-up"})
    header = json.loads((tmp_path / "run/config.json").read_text())
    assert header["config"]["learner"]["width"] == 128
    assert RunDirectory.open(tmp_path / "run").metrics() == [{"step": 1, "loss": 0.5, "note": "warm-up"}]
    assert list((tmp_path / "run/tensorboard").glob("events*"))


@pytest.mark.parametrize("line", ["[1]", "null", '{"success": 1}', '{"step": "one"}'])
def test_a_line_that_is_no_row_of_metrics_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"line 2 is no row with a step; .* restore it"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_metrics_that_are_not_finite_become_null(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.log(0, {"loss": float("nan")})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 0, "loss": None}]


def test_a_half_written_last_row_is_left_out_and_a_damaged_one_reported(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    assert read_metrics(path) == [{"step": 1}]
    path.write_text('{"step" 1}\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 1"):
        read_metrics(path)


def test_resume_goes_on_from_the_last_checkpoint_and_drops_later_rows(tmp_path):
    with RunDirectory.create(tmp_path / "run", Config()) as run:
        run.log(1, {"loss": 3.0})
        save(run, 1)
        run.log(2, {"loss": 2.0})
    with RunDirectory.create(tmp_path / "run", Config(out="elsewhere"), resume=True) as run:
        assert run.resumed.step == 1
        assert run.resumed.manifest["base_hash"] == "abc"
        assert run.resumed.manifest["env_steps"] == 10
        run.log(2, {"loss": 2.5})
        assert [row["loss"] for row in run.metrics()] == [3.0, 2.5]


def test_an_interrupted_checkpoint_is_never_seen(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config())
    save(run, 1)
    with pytest.raises(FileNotFoundError), run.checkpoint(2) as folder:
        (folder / "no such folder/weights.txt").write_text("half")
    partial = tmp_path / "run/checkpoints/.partial-000000002"
    (partial / "manifest.json").write_text('{"step": 2}')  # killed just before it became visible
    assert [kept.step for kept in run.checkpoints()] == [1]
    save(run, 2, "whole")
    assert (run.checkpoints()[-1].path / "weights.txt").read_text() == "whole"
    run.close()


@pytest.mark.parametrize("harm", ["swap", "cut", "remove"])
def test_a_checkpoint_whose_files_were_changed_is_not_gone_on_with(tmp_path, harm):
    with RunDirectory.create(tmp_path / "run", Config()) as run:
        save(run, 1, "first")
        save(run, 2, "second")
    file = run.checkpoints()[-1].path / "weights.txt"
    if harm == "remove":
        file.unlink()
    else:
        file.write_text({"swap": "of another run", "cut": "sec"}[harm])
    with pytest.raises(RunError, match=r"weights\.txt (was changed|is missing) since it was .*or remove"):
        RunDirectory.create(tmp_path / "run", Config(), resume=True)
    shutil.rmtree(file.parent)
    with RunDirectory.create(tmp_path / "run", Config(), resume=True) as run:
        assert run.resumed.step == 1


def test_a_folder_that_cannot_be_made_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"run cannot be made .*: give a folder elsewhere"):
        RunDirectory.create(tmp_path / "file" / "run", Config())


def test_only_the_newest_checkpoints_stay(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config())
    for step in (1, 2, 10):
        save(run, step)
    assert [kept.step for kept in run.checkpoints()] == [2, 10]
    run.close()


def test_a_run_is_not_overwritten_by_accident(tmp_path):
    RunDirectory.create(tmp_path / "run", Config(), kind="train").close()
    with pytest.raises(RunError, match="--resume"):
        RunDirectory.create(tmp_path / "run", Config(), kind="train")
    with pytest.raises(RunError, match="seed: 0 there, 7 now"):
        RunDirectory.create(tmp_path / "run", Config(seed=7), kind="train", resume=True)
    with pytest.raises(RunError, match="kind: train there, refine now"):
        RunDirectory.create(tmp_path / "run", Config(), kind="refine", resume=True)


def test_replace_starts_over_but_spares_folders_that_are_no_run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config())
    save(run, 1)
    run.close()
    assert RunDirectory.create(tmp_path / "run", Config(seed=1), replace=True).checkpoints() == []
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.txt").write_text("meow")
    with pytest.raises(RunError, match="holds no run"):
        RunDirectory.create(tmp_path / "photos", Config(), replace=True)
    assert (tmp_path / "photos/cat.txt").exists()


def test_a_missing_result_says_that_the_run_did_not_finish(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config(), kind="demo")
    with pytest.raises(RunError, match="did not finish"):
        run.read_json("result.json")
    run.write_json("result.json", {"rate": 0.5})
    assert run.read_json("result.json") == {"rate": 0.5}


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config())
    for how in ({"resume": True}, {"replace": True}):
        with pytest.raises(RunError, match="another process runs in"):
            RunDirectory.create(tmp_path / "run", Config(), **how)
    run.close()
    RunDirectory.create(tmp_path / "run", Config(), resume=True).close()


def test_replace_spares_the_config_json_of_other_programs_and_runs_of_another_kind(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match=r"config\.json lacks config, config_hash"):
        RunDirectory.create(tmp_path / "model", Config(), replace=True)
    assert (tmp_path / "model/config.json").exists()
    RunDirectory.create(tmp_path / "base", Config(), kind="train").close()
    with pytest.raises(RunError, match="holds a train run, not a demo run"):
        RunDirectory.create(tmp_path / "base", Config(), kind="demo", replace=True)
    assert RunDirectory.open(tmp_path / "base").kind == "train"


def test_a_run_that_fails_before_it_begins_leaves_its_folder_free(tmp_path):
    def fail(config):
        with RunDirectory.create(tmp_path / "run", config):
            raise ValueError("no such policy")

    with pytest.raises(ValueError, match="no such policy"):
        fail(Config(seed=1))
    (tmp_path / "run/.config.json.0.tmp").touch()  # a process killed while it wrote
    RunDirectory.create(tmp_path / "run", Config(seed=2)).close()


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_damaged_files_of_a_run_are_named(tmp_path, content):
    run = RunDirectory.create(tmp_path / "run", Config())
    save(run, 1)
    run.close()
    for name in ("config.json", "result.json", "checkpoints/000000001/manifest.json"):
        (tmp_path / "run" / name).write_text(content)
    for use in (run.checkpoints, lambda: run.read_json("result.json"), lambda: RunDirectory.open(run.path)):
        with pytest.raises(RunError, match=r"\.json (is damaged|holds no JSON object)"):
            use()
