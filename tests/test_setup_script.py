"""scripts/setup.sh with a stand-in for uv: which Python it takes, what it does twice, and how it gives up."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PLUGINS = ("plugins/lerobot_policy_robot_rl", "plugins/lerobot_env_robot_rl")
INPUTS = (
    "requirements.lock",
    "overrides.txt",
    "pyproject.toml",
    ".python-version",
    "scripts/setup.sh",
    *(f"{plugin}/pyproject.toml" for plugin in PLUGINS),
)


class Machine:
    """A copy of what the script reads, with a PATH and a HOME of its own."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        self.bin = folder / "bin"
        for path in (self.project, self.home, self.bin):
            path.mkdir(parents=True)
        for name in INPUTS:
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, self.project / name)
        self.calls = folder / "calls"
        self.program("apt-get", "exit 1")
        self.program("ldconfig", "echo libEGL.so.1 libOSMesa.so.8")
        self.program("python3.12", "echo 'this shim finds nothing' >&2; exit 127")
        self.program("python3", "exit 127")
        self.program("python", "exit 127")

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def python312(self) -> None:
        folder = self.home / ".pyenv/versions/3.12.1/bin"
        folder.mkdir(parents=True)
        (folder / "python3.12").symlink_to(sys.executable)

    def uv(self, fails_at: str = "never") -> None:
        self.program(
            "uv",
            f"""echo "$*" >> {self.calls}
case "$*" in
  *--help|--version) echo uv 9.9.9;;
  *'{fails_at}'*) exit 2;;
  venv*) mkdir -p .venv/bin; ln -sf {sys.executable} .venv/bin/python;;
esac""",
        )

    def setup(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "scripts/setup.sh"],
            cwd=self.project,
            # Without an index pip cannot fetch a real uv in place of the stand-in.
            env={
                "HOME": str(self.home),
                "PATH": f"{self.bin}:/usr/bin:/bin",
                "PIP_NO_INDEX": "1",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def recorded(self) -> str:
        return self.calls.read_text() if self.calls.exists() else ""

    @property
    def stamp(self) -> Path:
        return self.project / ".venv/.robot-rl-installed"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_shim_that_finds_nothing_is_passed_over(machine):
    machine.python312()
    machine.uv()
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert "--python .venv/bin/python requirements.lock" in machine.recorded()
    created = next(line for line in machine.recorded().splitlines() if line.startswith("venv"))
    assert str(machine.bin) not in created


def test_the_project_and_its_plugins_are_installed_in_place(machine):
    machine.python312()
    machine.uv()
    assert machine.setup().returncode == 0
    (installed,) = (line for line in machine.recorded().splitlines() if "--no-build-isolation" in line)
    assert installed.endswith(" ".join(["-e .", *(f"-e./{plugin}" for plugin in PLUGINS)]))


def test_the_second_run_asks_uv_for_nothing(machine):
    machine.python312()
    machine.uv()
    assert machine.setup().returncode == 0
    machine.calls.unlink()
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.recorded() == ""


@pytest.mark.parametrize("step", ["pip sync -q", "pip install -q"])
def test_a_half_finished_installation_is_taken_up_again(machine, step):
    machine.python312()
    machine.uv(fails_at=step)
    done = machine.setup()
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert not machine.stamp.exists()
    machine.uv()
    assert machine.setup().returncode == 0
    assert machine.stamp.exists()


def test_another_lock_is_installed(machine):
    machine.python312()
    machine.uv()
    machine.setup()
    machine.calls.unlink()
    with (machine.project / "requirements.lock").open("a") as lock:
        lock.write("another-package==1.0\n")
    assert machine.setup().returncode == 0
    assert "pip sync" in machine.recorded()


def test_a_moved_repository_gets_a_new_environment(machine):
    machine.python312()
    machine.uv()
    machine.setup()
    left_over = machine.stamp.with_name("left-over")
    left_over.touch()
    machine.project = machine.project.rename(machine.project.with_name("moved"))
    assert machine.setup().returncode == 0
    assert machine.stamp.exists()
    assert not machine.stamp.with_name("left-over").exists()


def test_a_named_python_that_does_not_work_is_named_back(machine):
    machine.uv()
    done = machine.setup(PYTHON=str(machine.bin / "python3.12"))
    assert done.returncode == 1
    assert str(machine.bin / "python3.12") in done.stderr
    assert "3.12" in done.stderr


def test_a_missing_rendering_library_stops_nothing(machine):
    machine.python312()
    machine.uv()
    machine.program("ldconfig", "true")
    # Nothing at all to install with: neither root's apt-get nor sudo.
    machine.program("id", "echo 1000")
    machine.program("sudo", "exit 1")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert os.access(machine.project / ".venv/bin/python", os.X_OK)
