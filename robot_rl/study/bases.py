"""Demonstrations and bases that the cells of a study make themselves, once for all cells that share them.

Both follow from the task, the training seed and what the file says, so that anybody who has the file gets the
same ones, and cells of one training seed are paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from data.config import from_dict, to_dict
from data.lock import FileLock
from robot_rl.collect import CollectConfig, collect
from robot_rl.provenance import config_hash
from robot_rl.seeds import DEMONSTRATION_SEEDS
from robot_rl.study.plan import Cell, StudyError
from robot_rl.task_settings import read_settings
from robot_rl.train import TrainConfig, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWN = frozenset({"data", "out", "seed", "resume", "wandb"})
"""Fields of the training that the cell determines."""
_PATIENCE_S = 3600.0
"""How long a cell waits for another one that makes the same; a base takes minutes."""


@dataclass(frozen=True)
class Recorded:
    """Demonstrations of the task's expert: the table ``data`` of a method's parameters.

    Attributes:
        demonstrations: How many.
        options: Of the task while it is demonstrated, as a task of the study has them; the cell's own when
            missing, so that ``{}`` demonstrates the plain task.
    """

    demonstrations: int = 100
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Cloned(Recorded):
    """A base cloned from demonstrations: the table ``base`` of a method's parameters.

    Attributes:
        train: Fields of `TrainConfig`.
    """

    train: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the names before anything is computed."""
        known = {one.name for one in fields(TrainConfig)} - OWN
        if unknown := sorted(self.train.keys() - known):
            raise StudyError(
                f"base.train names {unknown}; allowed are fields of TrainConfig that the study does not "
                f"determine: {', '.join(sorted(known))}"
            )

    @property
    def recorded(self) -> Recorded:
        """What it is cloned from."""
        return Recorded(self.demonstrations, self.options)


def demonstrations(cell: Cell, shelf: Path, wanted: Recorded) -> Path:
    """Record demonstrations of the cell's task, unless they are there.

    Args:
        cell: Names task and training seed.
        shelf: Folder that all cells of the study have in common.
        wanted: How many, and of which variant of the task.

    Returns:
        The run of the collection.
    """
    options = cell.options if wanted.options is None else wanted.options
    facts = {"task": cell.task, "seed": cell.seed, "options": options, "episodes": wanted.demonstrations}

    def record(out: Path) -> None:
        config = CollectConfig(
            out=out,
            task=cell.task,
            episodes=wanted.demonstrations,
            seed=DEMONSTRATION_SEEDS + 100_000 * cell.seed,
            workers=1,
            **read_settings(options).task_settings,
            resume=out.exists(),
        )
        collect(config)

    return _once(shelf, "demonstrations", facts, record)


def base(cell: Cell, shelf: Path, wanted: Cloned) -> Path:
    """Clone a base, unless it is there; see `demonstrations`.

    Returns:
        The run of the training, which is the policy's folder.
    """
    data = demonstrations(cell, shelf, wanted.recorded)

    def clone(out: Path) -> None:
        place = {"data": str(data), "out": str(out), "seed": cell.seed, "resume": out.exists()}
        train(from_dict(TrainConfig, {**wanted.train, **place}))

    facts = {"demonstrations": data.name, "train": to_dict(wanted.train), "seed": cell.seed}
    return _once(shelf, "base", facts, clone)


def read_table[T: Recorded](kind: type[T], name: str, table: object) -> T:
    """Read one of the two tables of a method's parameters.

    Raises:
        StudyError: It is no table, or a value in it is wrong.
    """
    if not isinstance(table, Mapping):
        raise StudyError(
            f"parameter {name} is {table!r}: give a table of {', '.join(one.name for one in fields(kind))}"
        )
    try:
        return from_dict(kind, table)
    except StudyError:
        raise
    except (TypeError, ValueError) as error:
        raise StudyError(f"parameter {name}: {error}") from error


def _once(shelf: Path, what: str, facts: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
    """Make a run whose name is the hash of what determines it; of several cells one makes it, others wait."""
    folder = shelf / f"{what}-{config_hash(facts)[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder)
    if not lock.acquire(_PATIENCE_S):
        raise StudyError(f"another process has held {folder} for {_PATIENCE_S:.0f} s: see whether it hangs")
    with lock:
        run = folder / "run"
        if not (run / "result.json").exists():  # every kind of run writes it last
            make(run)
    return run
