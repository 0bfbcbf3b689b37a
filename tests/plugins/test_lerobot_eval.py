"""LeRobot's own evaluation program runs an exported policy and counts the successes that we count."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.export import ExportConfig, export
from tests.conftest import REPOSITORY
from tests.robot_rl.toy import TOY

PLUGINS = [str(REPOSITORY / "plugins" / name) for name in ("lerobot_policy_robot_rl", "lerobot_env_robot_rl")]


def installed(folder):
    """Make LeRobot find the plugins as it finds installed ones, by the names of distributions."""
    for plugin in PLUGINS:
        name = Path(plugin).name
        (folder / f"{name}-0.1.0.dist-info").mkdir(parents=True)
        (folder / f"{name}-0.1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"
        )
    return folder


def lerobot_eval(folder, out, *words):
    """Run ``lerobot-eval`` as a program of its own; its eval_info.json."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *PLUGINS, str(installed(out.parent / "installed"))]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        *(sys.executable, "-m", "lerobot.scripts.lerobot_eval"),
        f"--policy.path={folder}",
        "--policy.device=cpu",
        "--env.type=robot_rl",
        "--eval.use_async_envs=false",
        f"--output_dir={out}",
        *words,
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=out.parent
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((out / "eval_info.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_seeds_have_the_same_outcomes(base, corrected, tmp_path):
    folder = export(ExportConfig(policy=base, refiner=(corrected,), out=tmp_path / "out"))
    ours = evaluate(
        EvaluateConfig(policy=base, refiner=(corrected,), task=TOY, seed=30, episodes=12, batch=4, workers=1)
    )
    assert 0 < sum(ours.outcomes) < 12
    info = lerobot_eval(
        folder,
        tmp_path / "eval",
        f"--env.task={TOY}",
        "--env.video=false",
        "--seed=30",
        "--policy.seed=30",
        "--eval.n_episodes=12",
        "--eval.batch_size=4",
    )
    (task,) = info["per_task"]
    assert task["metrics"]["successes"] == ours.outcomes
