"""Progress on anything over two seconds: a rich bar in a terminal, one plain log line per stage elsewhere."""

import logging
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

logger = logging.getLogger(__name__)

# Bars go to standard error, so that standard output holds results only. Nested stages share one display.
_display: ContextVar[Progress | None] = ContextVar("progress_display", default=None)


class Stage:
    """One stage of work that reports its progress. Made by :func:`stage`.

    Attributes:
        done: units of work finished so far.
    """

    def __init__(self, total: float | None, display: Progress | None, task: TaskID | None) -> None:
        self.done = 0.0
        self.note = ""
        self._total = total
        self._display = display
        self._task = task

    def advance(self, units: float = 1, note: str | None = None) -> None:
        """Report ``units`` more as finished.

        Args:
            units: finished since the last call.
            note: a few words shown beside the bar (``12 of 20 succeeded``); None keeps the last ones.
        """
        self.update(self.done + units, note)

    def update(self, done: float, note: str | None = None) -> None:
        """Report that ``done`` units are finished in all."""
        self.done = done
        self.note = self.note if note is None else note
        if self._display is not None and self._task is not None:
            self._display.update(self._task, completed=done, note=self.note)

    @property
    def summary(self) -> str:
        """How much was done, in words; empty where nothing was counted."""
        if self._total is None and not self.done and not self.note:
            return ""
        of = f" of {self._total:g}" if self._total is not None and self.done != self._total else ""
        return f"{self.done:g}{of}" + (f" ({self.note})" if self.note else "")


@contextmanager
def stage(name: str, total: float | None = None) -> Iterator[Stage]:
    """Show ``name`` as running while the block runs.

    Args:
        name: what is being done, for example ``Collecting demonstrations``.
        total: units of work; None when unknown.

    Yields:
        the object to report progress to.
    """
    started = time.monotonic()
    display = _display.get()
    if display is not None:
        task = display.add_task(name, total=total, note="")
        yield from _run(Stage(total, display, task), name, started, quiet=True)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from _run(Stage(total, None, None), name, started, quiet=False)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as display:
        token = _display.set(display)
        try:
            yield from _run(
                Stage(total, display, display.add_task(name, total=total, note="")), name, started, quiet=True
            )
        finally:
            _display.reset(token)


def _run(reporter: Stage, name: str, started: float, *, quiet: bool) -> Iterator[Stage]:
    yield reporter
    level = logging.DEBUG if quiet else logging.INFO
    done = f": {reporter.summary}" if reporter.summary else ""
    logger.log(level, "%s%s in %.1f s", name, done, time.monotonic() - started)


def track[Item](items: Iterable[Item], name: str, total: float | None = None) -> Iterator[Item]:
    """Yield ``items``, one unit of progress each.

    Args:
        items: what to go through.
        name: what is being done.
        total: number of items; None asks ``items`` for its length.
    """
    if total is None:
        total = len(items) if isinstance(items, Sized) else None
    with stage(name, total) as reporter:
        for item in items:
            yield item
            reporter.advance()
