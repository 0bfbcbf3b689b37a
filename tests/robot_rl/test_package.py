import subprocess
import sys
from pathlib import Path

import pytest

import robot_rl

ROOT = Path(robot_rl.__file__).resolve().parents[1]


def python(code, path):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd="/"
    )


def test_every_public_name_can_be_imported():
    assert sorted(robot_rl._EXPORTS) == robot_rl.__all__
    for name in robot_rl.__all__:
        assert getattr(robot_rl, name) is not None
        assert name in dir(robot_rl)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="make_env"):
        _ = robot_rl.make_environment


def test_importing_the_package_is_cheap():
    code = "import robot_rl, sys; sys.exit(bool({'torch', 'mujoco', 'numpy'} & set(sys.modules)))"
    assert python(code, str(ROOT)).returncode == 0


@pytest.mark.parametrize("kind", ["package", "module", "folder"])
def test_a_hiding_package_is_named(tmp_path, kind):
    if kind == "module":
        (tmp_path / "data.py").touch()
    else:
        (tmp_path / "data").mkdir()
        if kind == "package":
            (tmp_path / "data/__init__.py").touch()
    done = python("import robot_rl", f"{tmp_path}:{ROOT}")
    if kind == "folder":  # Python prefers a package further down its path to a bare folder
        assert done.returncode == 0
        return
    assert "ImportError: another 'data' hides robot-rl's package" in done.stderr
    assert str(tmp_path) in done.stderr
