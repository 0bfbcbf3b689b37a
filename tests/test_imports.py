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
    "policies.connection",
    "policies.errors",
    "policies.wire",
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


def test_only_the_adapters_name_lerobots_policies():
    home = Path(__file__).resolve().parents[1]
    named = [
        str(file.relative_to(home))
        for package in ("data", "hardware", "policies", "sim", "robot_rl")
        for file in (home / package).rglob("*.py")
        if "lerobot.policies" in file.read_text(encoding="utf-8")
        and file.parent != home / "policies" / "lerobot"
    ]
    assert not named, "import them through policies.lerobot, so that another version touches one package"
