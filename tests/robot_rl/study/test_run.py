import dataclasses
import json
import math
import signal

import pytest

from data.lock import FileLock
from robot_rl.correct.residual_recipe import RefineConfig
from robot_rl.demo import DemoConfig
from robot_rl.study import predict as predicting
from robot_rl.study import table
from robot_rl.study.cell import Finished, compute, path_of, read_cell
from robot_rl.study.plan import Arm, Method, Study, StudyError, TaskEntry, cells
from robot_rl.study.predict import check_budget, predict
from robot_rl.study.run import _start, run_study
from robot_rl.study.table import Row, rows_of, write_table
from tests.robot_rl.toy import TOY

TOYS = "tests.robot_rl.study.toy_methods"


def study(folder, function="coin", **changes):
    made = Study(
        name="toy",
        tier=2,
        methods=(Method("m", f"{TOYS}:{function}", {"share": 0.5}, core_minutes=0.01),),
        tasks=(TaskEntry(TOY),),
        seeds=(0,),
        episodes=100,
        arms=(Arm("low"), Arm("high", {"share": 0.8})),
        results=folder / "results",
        scratch=folder / "scratch",
        docs=folder / "docs",
    )
    return dataclasses.replace(made, **changes)


def finish(made):
    for cell in cells(made):
        compute(cell, made.results, made.scratch)
    return made


def test_cells_run_in_processes_of_their_own_and_only_once(tmp_path):
    made = study(tmp_path)
    summary = run_study(made, minutes=2, workers=2)
    assert (summary.finished, summary.total, summary.failed) == (2, 2, [])
    file = path_of(cells(made)[1], made.results)
    content = json.loads(file.read_text())
    assert content["success"] == "1" * 80 + "0" * 20
    assert content["config_hash"] == cells(made)[1].config_hash
    assert file.stat().st_size < 5000
    before = file.stat().st_mtime_ns
    assert run_study(made, minutes=2).complete
    assert file.stat().st_mtime_ns == before


def test_a_failed_cell_is_reported_with_its_log_and_does_not_stop_the_others(tmp_path):
    methods = (Method("bad", f"{TOYS}:broken", core_minutes=0.01), study(tmp_path).methods[0])
    summary = run_study(study(tmp_path, methods=methods, arms=(Arm("a"),)), minutes=2, workers=2)
    assert (summary.finished, summary.total) == (1, 2)
    assert "the robot fell over" in summary.failed[0][1].read_text()


def test_a_study_stops_after_its_minutes_and_leaves_no_half_cell(tmp_path):
    made = study(tmp_path, function="slow", arms=(Arm("a"),))
    summary = run_study(made, minutes=0.05, workers=1)
    assert (summary.finished, summary.failed) == (0, [])
    assert not list(made.results.rglob("*.json"))
    assert (made.scratch / "toy" / cells(made)[0].id / "log.txt").exists()


def test_other_seeds_than_asked_for_void_a_cell(tmp_path):
    made = study(tmp_path, function="wrong_seeds")
    with pytest.raises(StudyError, match="other seeds than 10000 to 10099"):
        compute(cells(made)[0], made.results, made.scratch)


def test_a_missing_function_is_named(tmp_path):
    made = study(tmp_path, function="no_such")
    with pytest.raises(StudyError, match="give module:function"):
        compute(cells(made)[0], made.results, made.scratch)


def test_a_cell_of_another_configuration_is_not_believed(tmp_path):
    made = finish(study(tmp_path))
    file = path_of(cells(made)[0], made.results)
    file.write_text(file.read_text().replace(cells(made)[0].config_hash, "0" * 16))
    with pytest.raises(StudyError, match="remove the file"):
        read_cell(cells(made)[0], made.results)


def test_a_study_above_its_budget_starts_nothing(tmp_path):
    expensive = Method("m", f"{TOYS}:coin", {"share": 0.5}, core_minutes=200.0)
    with pytest.raises(StudyError, match=r"2 cells would take 6\.7 core-hours \(m from core_minutes"):
        run_study(study(tmp_path, methods=(expensive,)), minutes=1)
    assert not list(tmp_path.glob("scratch/toy/*"))
    check_budget(predict(study(tmp_path, methods=(expensive,))), budget=7.0)


def test_two_runs_of_a_study_at_once_are_refused(tmp_path):
    made = study(tmp_path)
    (tmp_path / "scratch" / "toy").mkdir(parents=True)
    with FileLock(tmp_path / "scratch" / "toy") as other:
        assert other.acquire()
        with pytest.raises(StudyError, match="another process runs the study in"):
            run_study(made, minutes=1)
    assert not list((tmp_path / "results").rglob("*.json"))


def test_the_cost_is_predicted_from_finished_cells_before_anything_else(tmp_path):
    made = study(tmp_path)
    file = compute(cells(made)[0], made.results, made.scratch)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"core_seconds": 1800.0}))
    found = predict(made)
    assert (found.cells, found.core_hours) == (1, 0.5)
    assert found.basis == {"m": "1 finished cells"}


def test_an_unknown_cost_is_predicted_from_the_speed_of_the_task(tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_speed", lambda cell, known: (100.0, 12))
    method = Method("m", f"{TOYS}:coin", {"share": 0.5, "env_steps": 3600})
    found = predict(study(tmp_path, methods=(method,), arms=(Arm("a"),)))
    # 5 x 3600 learning steps and 2 x 100 episodes x 12 steps at 100 steps/s
    assert found.core_hours == pytest.approx((5 * 3600 + 2 * 100 * 12) / 100 / 3600)


@pytest.mark.parametrize(
    ("run", "parameters", "steps"),
    [
        ("robot_rl.study.methods:residual", {}, RefineConfig.env_steps),
        ("robot_rl.study.peg_insert:refined", {}, DemoConfig.env_steps),
        ("robot_rl.study.peg_insert:refined", {"env_steps": 5000}, 5000),
        ("robot_rl.study.peg_insert:base", {}, 0),
    ],
)
def test_a_cell_that_leaves_its_learning_steps_out_is_predicted_with_the_default(
    tmp_path, monkeypatch, run, parameters, steps
):
    monkeypatch.setattr(predicting, "_speed", lambda cell, known: (100.0, 12))
    found = predict(study(tmp_path, methods=(Method("m", run, parameters),), arms=(Arm("a"),)))
    assert found.core_hours == pytest.approx((5 * steps + 2 * 100 * 12) / 100 / 3600)


def test_the_speed_of_a_task_is_measured(tmp_path):
    speed, longest = predicting._speed(cells(study(tmp_path))[0], {})
    assert speed > 1000
    assert longest == 12


def test_a_tier_1_table_compares_with_the_first_arm_and_names_the_control(tmp_path):
    arms = (Arm("low"), Arm("high", {"share": 0.8}), Arm("same", {"share": 0.5, "x": 1}, control=True))
    made = finish(study(tmp_path, tier=1, seeds=(0, 1, 2), episodes=300, arms=arms))
    page, figure = write_table(made)
    text = page.read_text()
    # 150, 151, 152 of 300 against 240, 241, 242: plus 90 of 300 with every seed
    assert "| m, high | 80.3 % |" in text
    assert "| +30.0 (" in text
    assert "| better |" in text
    assert "m, same (control) | 50.3 % | 47.1 % to 53.6 % | 50.0 %, 50.3 %, 50.7 %" in text
    assert text.count("not shown") == 1
    assert "Unfinished" not in text
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_default_arm_needs_no_name(tmp_path):
    made = finish(study(tmp_path, arms=(Arm("default"), Arm("high", {"share": 0.8}))))
    assert [row.name for row in rows_of(made)] == ["m", "m, high"]


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((40, 50, 60), "better"),
        ((-40, -50, -60), "worse"),
        ((90, 80, -10), "not shown"),
        ((0, 1, 0), "not shown"),
    ],
)
def test_a_difference_counts_only_if_every_training_seed_agrees(tmp_path, gains, verdict):
    def row(successes):
        made = cells(study(tmp_path, tier=1, seeds=(0, 1, 2), episodes=300, arms=(Arm("a", control=True),)))
        outcomes = [(True,) * n + (False,) * (300 - n) for n in successes]
        finished = [
            Finished(cell, one, (1,) * 300, 1.0, {}) for cell, one in zip(made, outcomes, strict=True)
        ]
        return Row(TOY, "m", "a", False, tuple(finished))

    assert table._comparison(row((150,) * 3), row([150 + gain for gain in gains]))[1] == verdict


def test_a_tier_2_table_claims_no_ordering(tmp_path):
    text = write_table(finish(study(tmp_path)))[0].read_text()
    assert "exploratory" in text
    assert "claims no ordering" in text
    assert "better" not in text
    assert "minus" not in text


ARMS_WITH_CONTROL = (Arm("a"), Arm("b", {"share": 0.8}, control=True))


def test_a_table_says_how_often_each_hook_acted(tmp_path):
    """The mean over training seeds; empty for a row without that hook."""
    made = finish(study(tmp_path, tier=1, seeds=(0, 1, 2), episodes=300, arms=ARMS_WITH_CONTROL))
    for cell, share in zip((one for one in cells(made) if one.arm == "a"), (0.1, 0.2, 0.6), strict=True):
        file = path_of(cell, made.results)
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"facts": {"lpb.active_share": share}}))
    header, _, first, second = write_table(made)[0].read_text().splitlines()[6:10]
    column = header.split(" | ").index("steps with lpb")
    assert first.split(" | ")[column] == "30.0 %"
    assert second.split(" | ")[column] == ""


def test_an_unfinished_study_says_so_and_an_empty_one_makes_no_table(tmp_path):
    made = study(tmp_path)
    with pytest.raises(StudyError, match="no finished cell"):
        write_table(made)
    compute(cells(made)[0], made.results, made.scratch)
    assert "**Unfinished: 1 of 2 cells.**" in write_table(made)[0].read_text()


def test_the_same_cells_make_the_same_page(tmp_path):
    made = finish(study(tmp_path))
    first = [path.read_bytes() for path in write_table(made)]
    assert [path.read_bytes() for path in write_table(made)] == first
    assert [row.rate for row in rows_of(made)] == [0.5, 0.8]


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[1]", '{"config_hash": 1, "success": "12"}'),
        '{"config_hash": 1, "success": "1", "steps": [Infinity]}',
    ],
)
def test_a_damaged_cell_is_named_with_its_remedy(tmp_path, content):
    made = finish(study(tmp_path))
    path_of(cells(made)[0], made.results).write_text(content)
    with pytest.raises(StudyError, match=r"is damaged .* remove it to compute the cell again"):
        rows_of(made)


def test_a_cell_with_too_few_episodes_is_not_believed(tmp_path):
    made = finish(study(tmp_path))
    file = path_of(cells(made)[0], made.results)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"success": content["success"][1:]}))
    with pytest.raises(StudyError, match="holds not 100 episodes"):
        read_cell(cells(made)[0], made.results)


@pytest.mark.parametrize(
    "wrong",
    [
        {"minutes": math.nan},
        {"workers": -1, "minutes": 1},
        {"workers": 100_000, "minutes": 1},
        {"minutes": 1, "budget": math.nan},
        {"minutes": 1, "budget": -1.0},
    ],
)
def test_senseless_limits_start_nothing(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"(minutes|workers|budget) is .*allowed is"):
        run_study(study(tmp_path), **wrong)
    assert not list(tmp_path.glob("scratch/toy/*"))


def test_results_that_cannot_be_kept_are_not_computed(tmp_path):
    (tmp_path / "results").write_text("a file")
    made = study(tmp_path)
    with pytest.raises(StudyError, match="results/toy cannot be made"):
        run_study(made, minutes=1)
    assert not made.scratch.exists()


def test_names_that_differ_in_punctuation_alone_are_refused(tmp_path):
    with pytest.raises(StudyError, match="would share a file"):
        study(tmp_path, arms=(Arm("touch zeroed"), Arm("touch-zeroed")))


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_cell_ends_with_the_study_that_started_it(tmp_path, handler):
    made = study(tmp_path, function="slow", arms=(Arm("a"),))
    before = signal.signal(signal.SIGINT, handler)  # ignored where a script starts it in the background
    try:
        running = _start(made, cells(made)[0], 1)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        running.process.stdin.close()  # as the operating system does for a process that was killed
        assert running.process.wait(timeout=120) in {130, -signal.SIGINT}
    finally:
        running.process.kill()
        running.process.wait()
