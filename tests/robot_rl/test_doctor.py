import sys

from robot_rl import doctor
from robot_rl.cli import main
from robot_rl.doctor import Finding, Status, healthy


def test_only_what_the_main_job_needs_makes_it_unhealthy():
    optional = Finding("rerun", Status.OPTIONAL, "not installed", "pip install it")
    assert healthy([Finding("python", Status.OK, "3.12"), optional])
    assert not healthy([optional, Finding("mujoco", Status.MISSING, "not installed", "make setup")])


def test_a_probe_survives_a_library_that_kills_its_process():
    killed = doctor._probe("x", "import os; os.kill(os.getpid(), 11)", "remedy", Status.OPTIONAL)
    assert killed == Finding("x", Status.OPTIONAL, "it was killed", "remedy")
    failed = doctor._probe("x", "raise OSError('no display')", "remedy", Status.MISSING)
    assert failed == Finding("x", Status.MISSING, "OSError: no display", "remedy")
    found = doctor._probe(
        "x", "import os; print(os.environ['MUJOCO_GL'])", "", Status.MISSING, MUJOCO_GL="egl"
    )
    assert found == Finding("x", Status.OK, "egl")


def test_a_missing_package_names_what_brings_it(monkeypatch):
    assert doctor._package("no-such-package").remedy == "make setup"
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert "-e '.[view]'" in doctor._extra("rerun").remedy


def test_another_python_is_refused(monkeypatch):
    assert doctor._python().status is (Status.OK if sys.version_info[:2] == (3, 12) else Status.MISSING)
    monkeypatch.setattr(doctor.sys, "version_info", (3, 11, 0))
    assert doctor._python().status is Status.MISSING


def test_the_exit_code_and_the_last_line_say_whether_the_demo_can_run(monkeypatch, capsys):
    for status, code, words in ((Status.OK, 0, "can run"), (Status.MISSING, 1, "cannot run yet")):
        found = [Finding("mujoco", status, "found", "how [to] get it")]
        monkeypatch.setattr("robot_rl.cli.doctor.examine", lambda found=found: iter(found))
        assert main(["doctor"]) == code
        printed = capsys.readouterr().out
        assert words in printed
        assert "how [to] get it" in printed  # an extra in brackets is no style


def test_memory_that_the_kernel_keeps_of_files_counts_as_available(monkeypatch):
    monkeypatch.setattr("robot_rl.doctor.available_memory", lambda: 3 * 2**29)
    assert doctor._memory().detail.endswith("GiB, 1.5 available")
