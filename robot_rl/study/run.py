"""Runs the missing cells of a study in parallel, and stops cleanly."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data.config import to_dict
from data.lock import FileLock
from robot_rl.parallel import MOST_WORKERS, cores
from robot_rl.progress import Stage, stage
from robot_rl.study.cell import path_of, read_cell
from robot_rl.study.plan import Cell, Study, StudyError, cells, study_folder
from robot_rl.study.predict import check_budget, predict

logger = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
"""How long a cell may take to stop; longer ones are killed and lose what follows their last checkpoint."""
POLL_SECONDS = 0.2


@dataclass
class Summary:
    """How a study stands after a run."""

    finished: int = 0
    total: int = 0
    failed: list[tuple[str, Path]] = field(default_factory=list)
    """id and log of cells that failed"""

    @property
    def complete(self) -> bool:
        """Whether every cell is finished."""
        return self.finished == self.total


@dataclass
class _Running:
    cell: Cell
    process: subprocess.Popen[str]
    log: Path
    width: int


def run_study(study: Study, *, minutes: float, budget: float | None = None, workers: int = 0) -> Summary:
    """Run the cells that are not finished yet.

    Args:
        study: the grid.
        minutes: no cell starts after that, and those that run are asked to stop; they go on next time from
            what they left in their scratch folder.
        budget: core-hours; the study's own when None.
        workers: cores to use; 0 is all.

    Raises:
        StudyError: if the prediction is above the budget, another process runs the study, or its folders
            cannot be written; nothing was started.
    """
    if not minutes > 0:
        raise ValueError(f"minutes is {minutes}, allowed is more than 0")
    if not 0 <= workers <= MOST_WORKERS:
        raise ValueError(f"workers is {workers}, allowed is 0 (one per core) to {MOST_WORKERS}")
    study_folder(study.results / study.name)
    with _alone(study):
        return _run(study, minutes, budget, workers)


@contextlib.contextmanager
def _alone(study: Study) -> Iterator[None]:
    """Keep other runs of the same study away: two would compute each cell twice, in one folder."""
    folder = study_folder(study.scratch / study.name)
    lock = FileLock(folder)
    if not lock.acquire():
        raise StudyError(f"another process runs the study in {folder}: wait until it ends, or stop it")
    with lock:
        yield


def _run(study: Study, minutes: float, budget: float | None, workers: int) -> Summary:
    prediction = predict(study)
    check_budget(prediction, study.budget_core_hours if budget is None else budget)
    if prediction.cells:
        logger.info("%d cells, about %.2f core-hours", prediction.cells, prediction.core_hours)
    deadline = time.monotonic() + 60 * minutes
    waiting = [cell for cell in cells(study) if read_cell(cell, study.results) is None]
    summary = Summary(total=len(cells(study)))
    summary.finished = summary.total - len(waiting)
    with stage(f"Study {study.name}", summary.total) as bar:
        bar.update(summary.finished)
        _Scheduler(study, summary, bar, workers or cores()).run(waiting, deadline)
    return summary


class _Scheduler:
    """Keeps the cores busy with cells until the deadline."""

    def __init__(self, study: Study, summary: Summary, bar: Stage, slots: int) -> None:
        self._study, self._summary, self._bar, self._slots = study, summary, bar, slots
        self._widths = {method.name: min(method.cores, slots) for method in study.methods}
        self._running: list[_Running] = []

    def run(self, waiting: list[Cell], deadline: float) -> None:
        """Start cells in order while there is room and time."""
        try:
            while (waiting or self._running) and time.monotonic() < deadline:
                while waiting and self._fits(waiting[0]):
                    cell = waiting.pop(0)
                    self._running.append(_start(self._study, cell, self._widths[cell.method]))
                time.sleep(POLL_SECONDS)
                for one in [one for one in self._running if one.process.poll() is not None]:
                    self._running.remove(one)
                    self._account(one)
        finally:
            _stop(self._running)
            for one in self._running:  # one may have finished while it was asked to stop
                self._account(one, stopped=True)

    def _fits(self, cell: Cell) -> bool:
        return sum(one.width for one in self._running) + self._widths[cell.method] <= self._slots

    def _account(self, one: _Running, *, stopped: bool = False) -> None:
        summary = self._summary
        assert one.process.stdin is not None, "asked for a pipe"
        one.process.stdin.close()
        if path_of(one.cell, self._study.results).exists():
            summary.finished += 1
        elif not stopped:
            summary.failed.append((one.cell.id, one.log))
            logger.error("cell %s failed, see %s", one.cell.id, one.log)
        self._bar.update(summary.finished, f"{len(summary.failed)} failed" if summary.failed else None)


def _start(study: Study, cell: Cell, width: int) -> _Running:
    folder = study.scratch / cell.study / cell.id
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    request = {"cell": to_dict(cell), "results": str(study.results), "scratch": str(study.scratch)}
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.study.cell"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process only, which then stops the cells in order
        )
    assert process.stdin is not None, "asked for a pipe"
    with contextlib.suppress(BrokenPipeError):  # it ended already; its log says why
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()  # and stays open: the cell takes its end for ours
    return _Running(cell, process, log, width)


def _stop(running: list[_Running]) -> None:
    for one in running:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
    until = time.monotonic() + GRACE_SECONDS
    for one in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):  # nothing is left of the cell
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()
