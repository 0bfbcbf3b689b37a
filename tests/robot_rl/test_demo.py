"""The whole job in miniature, on PushDisc: it improves the base, and kill -9 does not change the result."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.config import to_dict
from robot_rl.cli.parsing import parse
from robot_rl.demo import DemoConfig, run_demo
from robot_rl.provenance import config_differences, config_hash
from robot_rl.report.build import write_report
from robot_rl.runs import RunDirectory

pytestmark = pytest.mark.timeout(900)

MINIATURE = [
    *("demo", "--task", "push-disc", "--inputs", "observation.state", "--no-video"),
    *("--demonstrations", "20", "--base-steps", "300", "--env-steps", "9000", "--warmup-steps", "1000"),
    *("--episodes", "200", "--options", "expert_bias_m", "0.03", "expert_noise", "0.4"),
]


def _start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "robot_rl.cli", *MINIATURE, "--out", str(out), *more]
    return subprocess.Popen(words, start_new_session=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "run"
    assert _start(out).wait() == 0
    return out


@pytest.mark.slow
def test_really_improves_the_base_and_leaves_it_alone(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert result["paired_difference"]["interval"][0] > 0
    assert result["base_hash_before"] == result["base_hash_after"]
    assert result["env_steps"] <= 9000
    seeds = [[row["seed"] for row in result[arm]["episodes"]] for arm in ("base", "refined")]
    assert seeds[0] == seeds[1]
    assert len(seeds[0]) == 200
    assert {"success_rate", "interval"} <= result["base"].keys()
    assert result["wall_seconds"] > 0


@pytest.mark.slow
def test_the_page_is_one_file_and_can_be_written_again(finished: Path, tmp_path: Path) -> None:
    page = write_report(finished, tmp_path / "report.html", video=False).read_text()
    assert "<link" not in page
    assert 'src="http' not in page


@pytest.mark.slow
def test_killed_and_resumed_it_gives_the_same_result(finished: Path, tmp_path: Path) -> None:
    """In the middle of refining; the other stages' resumption has tests of its own."""
    out = tmp_path / "run"
    process = _start(out)
    deadline = time.monotonic() + 300
    while not (out / "refined" / "checkpoints").exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "result.json").exists()
    assert _start(out, "--resume").wait() == 0
    killed, whole = (json.loads((run / "result.json").read_text()) for run in (out, finished))
    for arm in ("base", "refined"):
        assert killed[arm]["episodes"] == whole[arm]["episodes"]


def test_a_seed_without_held_out_seeds_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="seed is 1000"):
        DemoConfig(seed=1000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"demonstrations": 0},
        {"base_steps": -1},
        {"warmup_steps": 40_000},
        {"scale_fraction": float("nan")},
        {"workers": 999},
        {"env_steps": 3100},
        {"inputs": ("observation.stat",)},
        {"device": "tpu"},
        {"task": "peg"},
    ],
)
def test_what_a_later_stage_would_refuse_costs_no_earlier_run(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with RunDirectory.create(tmp_path, {}, kind="demo") as run:
        run.write_json("result.json", {})
    words = "episodes|steps|scale|workers|inputs|device|task"
    with pytest.raises(ValueError, match=words):
        run_demo(replace(DemoConfig(out=tmp_path), **wrong))
    assert (tmp_path / "result.json").exists()


def test_the_words_of_the_slow_tests_are_still_accepted() -> None:
    config = parse(DemoConfig, MINIATURE[1:], "demo")
    assert config.options == {"expert_bias_m": 0.03, "expert_noise": 0.4}


def test_a_run_goes_on_with_a_video_or_without() -> None:
    one, other = (to_dict(DemoConfig(video=video)) for video in (True, False))
    assert config_hash(one) == config_hash(other)
    assert config_differences(one, other) == []
