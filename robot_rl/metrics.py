"""Metrics of a run: one JSON line per row (the record), TensorBoard and optionally wandb (views of it)."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

from data.manifest import atomic_write_text


class _Writer(Protocol):
    """The part of TensorBoard's SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def read_metrics(path: Path, counter: str = "step") -> list[dict[str, Any]]:
    """Rows of a metrics file in order; a last line cut off by a killed process is left out.

    Args:
        path: of the file; there are no rows where it does not exist.
        counter: whole number that every row has.

    Raises:
        ValueError: if a line other than the last is not JSON, or one is no row of metrics.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise _damaged(path, number, "is not JSON") from error
        if not isinstance(row, dict) or not isinstance(row.get(counter), int):
            raise _damaged(path, number, f"is no row with a {counter}")
        rows.append(row)
    return rows


def _damaged(path: Path, number: int, what: str) -> ValueError:
    return ValueError(
        f"{path} line {number} {what}; the file was edited or damaged: restore it from a copy, "
        "or remove the line"
    )


class MetricsLog:
    """Append-only metrics of one run.

    Args:
        folder: the run directory; rows go to ``metrics.jsonl``, TensorBoard events to ``tensorboard/``.
        keep_until: rows of a later step are dropped first (a run that goes on from a checkpoint repeats
            them); None keeps every row.
        wandb: also log to Weights & Biases, which must be installed and logged in.
    """

    def __init__(self, folder: Path, *, keep_until: int | None = None, wandb: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        self._folder = folder
        self._purge = None if keep_until is None else keep_until + 1
        self._writer: _Writer | None = None
        self._wandb = _wandb_run(folder) if wandb else None
        rows = read_metrics(self.path)
        kept = rows if keep_until is None else [row for row in rows if row["step"] <= keep_until]
        if self.path.exists():
            atomic_write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = self.path.open("a", encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float | int | str | bool]) -> None:
        """Append one row and flush it to the operating system.

        Args:
            step: what the run counts (updates, or environment steps), >= 0.
            values: numbers and short texts by name; NaN and infinite numbers are written as null.
        """
        if step < 0:
            raise ValueError(f"step is {step}, allowed is 0 or more: count from the run's start")
        if "step" in values:
            raise ValueError("values contain 'step', which is the row's own counter: use another name")
        row = {"step": int(step)} | {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        numbers = {k: v for k, v in row.items() if k != "step" and isinstance(v, int | float)}
        for name, number in numbers.items():
            self._tensorboard().add_scalar(name, number, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def sync(self) -> None:
        """Force the rows to the disk (before a checkpoint that counts on them is committed)."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flush and close every sink; a second call does nothing."""
        if self._file.closed:
            return
        self.sync()
        self._file.close()
        if self._writer is not None:
            self._writer.close()
        if self._wandb is not None:
            self._wandb.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _tensorboard(self) -> _Writer:
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            place = str(self._folder / "tensorboard")
            writer = SummaryWriter(place, purge_step=self._purge)
            self._writer = cast("_Writer", writer)
        return self._writer


def _plain(value: float | str | bool) -> float | int | str | bool | None:
    if isinstance(value, bool | str | int):
        return value
    number = float(value)  # also takes NumPy scalars and one-element tensors
    return number if math.isfinite(number) else None


def _wandb_run(folder: Path) -> Any:  # noqa: ANN401 - wandb is optional and brings its own types
    try:
        import wandb
    except ImportError as error:
        raise ValueError("wandb is not installed: pip install wandb, or leave --wandb out") from error
    return wandb.init(project="robot-rl", name=folder.name, dir=str(folder), resume="allow", id=folder.name)
