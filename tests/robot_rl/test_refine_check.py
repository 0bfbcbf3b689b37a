import json

import pytest

from robot_rl.cli import main
from robot_rl.refine_check import concern

BASE = {"step": 500, "success": 0.75, "residual_rms": 0.0}


def waves(*successes):
    disturbed = {"step": 1000, "success": 0.1, "residual_rms": 0.4}
    learned = [{"step": 2000 + i, "success": s, "residual_rms": 0.3} for i, s in enumerate(successes)]
    return [BASE, disturbed, *learned]


@pytest.mark.parametrize(
    ("successes", "env_steps", "expected"),
    [
        ((0.25, 0.25, 0.5, 0.25), 5000, "worse than its base: 31% of the last 32 episodes succeeded, 75% of"),
        ((0.0, 0.0, 0.75, 0.75, 0.75, 1.0), 5000, None),
        ((0.625, 0.625, 0.75, 0.75), 5000, None),
        ((1.0,), 1900, "was short: it learned during 900 of 1900 steps"),
        ((), 5000, None),
    ],
)
def test_a_warning_comes_only_when_the_last_waves_are_clearly_below_the_base_or_few(
    successes, env_steps, expected
):
    said = concern(waves(*successes), rows=8, warmup_steps=1000, env_steps=env_steps, effect="residual_rms")
    assert (said is None) if expected is None else (expected in said)


def test_the_command_warns_after_it_said_where_the_refiner_is(tmp_path, monkeypatch, capsys):
    said = concern(waves(0.0, 0.0), rows=8, warmup_steps=1000, env_steps=9000, effect="residual_rms")
    (tmp_path / "result.json").write_text(json.dumps({"concern": said}))
    monkeypatch.setattr("robot_rl.correct.residual_recipe.refine", lambda config: tmp_path)
    words = ["--policy", "base", "--out", str(tmp_path)]
    assert main(["refine", "residual", *words]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "warning this refinement looks worse than its base: 0% of the last 16" in said
