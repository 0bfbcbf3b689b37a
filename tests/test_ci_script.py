""".ci/run with a stand-in for make: every stage runs, is timed, and pytest's closing line comes last."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def ci(tmp_path):
    """Run the script where `make` passes everything but the named targets."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci/run", tmp_path / ".ci/run")
    fake = tmp_path / "bin/make"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\necho "$1" >> calls\n'
        'case "$1" in test) echo "12 passed, 1 skipped in 3.00s";; test-slow) echo "2 passed in 9s";; esac\n'
        'case " $FAILING " in *" $1 "*) exit 2;; esac\n'
    )
    fake.chmod(0o755)

    def run(failing=""):
        environment = {**os.environ, "PATH": f"{fake.parent}:/usr/bin:/bin", "FAILING": failing}
        done = subprocess.run(
            ["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done, (tmp_path / "calls").read_text().split()

    return run


def test_all_stages_run_and_the_tests_count_comes_last(ci):
    done, called = ci()
    assert done.returncode == 0
    assert called == ["setup", "lint", "types", "docs", "test", "test-slow"]
    assert done.stdout.splitlines()[-1] == "12 passed, 1 skipped in 3.00s"
    assert all(any(line.startswith(stage) for line in done.stdout.splitlines()) for stage in ("lint", "slow"))


@pytest.mark.parametrize("stage", ["lint", "types", "docs", "test", "test-slow"])
def test_one_failing_stage_fails_the_run_and_stops_no_other(ci, stage):
    done, called = ci(failing=stage)
    assert done.returncode == 1
    assert len(called) == 6
    assert "FAILED" in done.stdout
    assert done.stdout.splitlines()[-1] == "12 passed, 1 skipped in 3.00s"


def test_nothing_runs_without_an_environment(ci):
    done, called = ci(failing="setup")
    assert done.returncode == 1
    assert called == ["setup"]
