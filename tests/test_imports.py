"""What a robot's computer imports must start without torch and without LeRobot."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIGHT = [
    "data.records",
    "data.store",
    "data.labels",
    "data.replay",
    "data.windows",
    "data.lerobot",
    "data.formats.registry",
    "data.formats.lerobot",
    "data.random_access",
    "hardware",
    "hardware.guard",
    "hardware.robot",
    "hardware.intervention",
    "robot_rl",
    "robot_rl.control",
]


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_starts_without_torch_and_lerobot(module):
    code = (
        f"import sys, {module}; print([m for m in ('torch', 'lerobot', 'jax', 'mujoco') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
