import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.parallel import WorkerDiedError, resolve_workers, run_tasks


class Power:
    def __init__(self, exponent):
        if exponent < 0:
            raise ValueError("exponent is negative")
        self.exponent = exponent

    def __call__(self, base):
        if base == "die":
            os._exit(9)
        return base**self.exponent


def test_results_carry_their_position_for_any_number_of_workers():
    tasks = [3, 1, 2]
    alone = dict(run_tasks(functools.partial(Power, 2), tasks, workers=1))
    together = dict(run_tasks(functools.partial(Power, 2), tasks, workers=2))
    assert alone == together == {0: 9, 1: 1, 2: 4}


def test_an_error_while_a_worker_loads_reaches_the_caller_as_itself():
    with pytest.raises(ValueError, match="exponent is negative"):
        list(run_tasks(functools.partial(Power, -1), [1, 2], workers=2))


def test_a_killed_worker_is_reported_with_a_remedy():
    with pytest.raises(WorkerDiedError, match="--workers"):
        list(run_tasks(functools.partial(Power, 1), ["die", 1], workers=2))


def test_leaving_early_ends_the_workers():
    before = set(multiprocessing.active_children())
    results = run_tasks(functools.partial(Power, 1), list(range(50)), workers=2)
    next(results)
    mine = set(multiprocessing.active_children()) - before
    assert mine
    results.close()
    # The pool's own thread reaps them too; until it is done, a dead process still counts as alive.
    deadline = time.monotonic() + 10
    while any(process.is_alive() for process in mine) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(process.is_alive() for process in mine)


def test_no_more_workers_than_tasks_and_none_by_negative_numbers():
    assert resolve_workers(8, tasks=3) == 3
    assert resolve_workers(0, tasks=1) == 1
    with pytest.raises(ValueError, match="workers is -1"):
        resolve_workers(-1, tasks=3)


class Sleeper:
    """Says its process id and never ends."""

    def __call__(self, folder):
        (Path(folder) / str(os.getpid())).touch()
        while True:
            time.sleep(0.02)


def _alive(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, number):
    script = (
        # a test run started in the background of a script ignores SIGINT, and so would its children
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from robot_rl.parallel import run_tasks\n"
        "from tests.robot_rl.test_parallel import Sleeper\n"
        "list(run_tasks(Sleeper, [sys.argv[1]] * 2, 2))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        _wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = [int(file.name) for file in tmp_path.iterdir()]
        parent.send_signal(number)
        assert parent.wait(20) != 0
        _wait_until(lambda: not any(map(_alive, workers)))
    finally:
        parent.kill()
        parent.wait()


def _wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
