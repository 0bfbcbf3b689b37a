"""One cell of a study: computed in a process of its own, kept as one small JSON file."""

import dataclasses
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from data.config import from_dict, to_dict
from data.imports import ImportPathError, import_object
from data.manifest import atomic_write_json
from robot_rl.provenance import git_revision, versions
from robot_rl.study.plan import Cell, StudyError
from robot_rl.threads import limit_threads


class CellFunction(Protocol):
    """What ``run`` of a method names."""

    def __call__(self, cell: Cell, out: Path) -> Mapping[str, Any]:
        """Compute a cell.

        Args:
            cell: task, parameters, training seed; evaluation seeds are ``first_seed`` and the ``episodes``
                that follow.
            out: scratch folder of the cell; what a stopped attempt left is there, to go on from.

        Returns:
            ``episodes``: a list of {"seed", "success", "steps"} in the order of the seeds (the shape of
            ``robot-rl evaluate --json``), and further JSON numbers worth a column, such as ``env_steps``.
        """
        ...


@dataclass(frozen=True)
class Finished:
    """A finished cell as it is kept."""

    cell: Cell
    outcomes: tuple[bool, ...]
    """success per evaluation seed"""
    steps: tuple[int, ...]
    core_seconds: float
    facts: Mapping[str, Any]


def path_of(cell: Cell, results: Path) -> Path:
    """Where a finished cell lies."""
    return results / cell.study / f"{cell.id}.json"


def read_cell(cell: Cell, results: Path) -> Finished | None:
    """A finished cell, None if it is not finished.

    Raises:
        StudyError: if the file is damaged or of another configuration.
    """
    file = path_of(cell, results)
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = content["config_hash"]
        finished = Finished(
            cell=cell,
            outcomes=tuple({"0": False, "1": True}[mark] for mark in content["success"]),
            steps=tuple(map(int, content["steps"])),
            core_seconds=float(content["core_seconds"]),
            facts=dict(content["facts"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise StudyError(f"{file} is damaged ({error!r}): remove it to compute the cell again") from error
    if found != cell.config_hash:
        raise StudyError(f"{file} holds {found}, not {cell.config_hash}: remove the file")
    if not len(finished.outcomes) == len(finished.steps) == cell.episodes:
        raise StudyError(f"{file} holds not {cell.episodes} episodes: remove it to compute the cell again")
    return finished


def compute(cell: Cell, results: Path, scratch: Path) -> Path:
    """Compute a cell in this process and keep it.

    Raises:
        StudyError: if the method's function is missing or returns other episodes than asked for.
    """
    started, before = time.monotonic(), _core_seconds()
    out = scratch / cell.study / cell.id
    out.mkdir(parents=True, exist_ok=True)
    found = dict(_function(cell.run)(cell, out))
    rows = found.pop("episodes")
    asked = list(range(cell.first_seed, cell.first_seed + cell.episodes))
    if [row["seed"] for row in rows] != asked:
        raise StudyError(
            f"{cell.run} returned other seeds than {asked[0]} to {asked[-1]} in order: the cell is void"
        )
    file = path_of(cell, results)
    file.parent.mkdir(parents=True, exist_ok=True)
    payload = {
        "cell": to_dict(cell),
        "config_hash": cell.config_hash,
        "success": "".join("01"[bool(row["success"])] for row in rows),
        "steps": [int(row["steps"]) for row in rows],
        "facts": {
            name: value for name, value in found.items() if isinstance(value, bool | int | float | str)
        },
        "core_seconds": _core_seconds() - before,
        "wall_seconds": time.monotonic() - started,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "versions": versions(),
        "git_revision": git_revision(),
    }
    atomic_write_json(file, payload, indent=None)
    return file


def learning_steps(cell: Cell) -> float:
    """Environment steps that a cell learns from: as its parameters say, or its configuration's default.

    The module of a function that refines says so in ``CONFIGURATIONS``: by the function's name,
    ``module:name`` of the dataclass with the default ``env_steps``, as text, so that a study is read without
    importing torch; or a function that gives it for a cell. A method without that field needs no steps.

    Raises:
        StudyError: if the method's function is missing.
    """
    if "env_steps" in cell.parameters:
        return float(cell.parameters["env_steps"])
    _function(cell.run)
    module, name = cell.run.split(":")
    configuration = getattr(importlib.import_module(module), "CONFIGURATIONS", {}).get(name)
    if configuration is None:
        return 0.0
    if callable(configuration):
        configuration = configuration(cell)
    kind = import_object(configuration) if isinstance(configuration, str) else configuration
    defaults = {one.name: one.default for one in dataclasses.fields(kind)}
    steps: Any = defaults.get("env_steps", 0)
    return float(steps)


def _function(reference: str) -> CellFunction:
    try:
        found: CellFunction = import_object(reference)
    except ImportPathError as error:
        raise StudyError(
            f"run is {reference!r}, which cannot be imported ({error.reason}): give module:function"
        ) from error
    return found


def _core_seconds() -> float:
    """Processor time of this process and of those it waited for, s."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def main() -> int:
    """Compute the cell whose JSON is the first line of standard input; the end of the input ends it."""
    limit_threads()
    # Processes that a script starts in the background ignore Ctrl-C, and hand that on to their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        compute(from_dict(Cell, request["cell"]), Path(request["results"]), Path(request["scratch"]))
    except KeyboardInterrupt:
        return 130
    return 0


def _end_with_input() -> None:
    # The descriptor, because a thread that waits in sys.stdin would hold its lock while Python ends.
    if not os.read(sys.stdin.fileno(), 1):
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
