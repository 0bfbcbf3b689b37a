"""The chunks that B rows execute: which is in execution, which is being computed, when the next is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from data.records import Chunk
from policies.errors import PolicyAwayError
from robot_rl.planner import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.policy import PolicySpec
    from robot_rl.planner import Planner
    from robot_rl.planning import Planned


class PlannedRow(Protocol):
    """What planning needs of a row, whether or not its episode is recorded."""

    @property
    def name(self) -> str:
        """Id of the episode."""
        ...

    @property
    def noise_rng(self) -> np.random.Generator:
        """Noise of the base's chunks."""
        ...

    @property
    def explore_rng(self) -> np.random.Generator:
        """Exploration of the corrector."""
        ...

    def keep(self, chunk: Chunk, step: int) -> None:
        """Write a chunk down that is known at control step `step`, or leave it."""
        ...


@dataclass(frozen=True)
class Previous:
    """Base chunks in execution, (B, H, A) in robot units, and how many steps of each were executed, (B,).

    A row of which H steps were executed has nothing left, as one whose chunk was forgotten.
    """

    chunk: NDArray[np.float32]
    consumed: NDArray[np.int64]


@dataclass
class _Asked:
    """Chunks that are being computed."""

    rows: NDArray[np.int64]
    generation: NDArray[np.int64]
    step: int
    id: int
    ticket: Ticket
    recorded: bool


class Plans:
    """Plans of B rows. As long as nobody takes over, all rows are planned in one batch.

    Args:
        spec: Of the policy.
        planner: Computes the chunks.
        compute: ``compute(rows, previous)`` gives what computes the chunks of those rows.
        rows: They keep the chunks.

    Attributes:
        chunk: (B, H, A) in execution; zeros where there is none.
        id: (B,) number of the chunk in execution; -1 where there is none.
        because: Why the last chunk that was asked for did not come, one text per row; empty where it did.
        info: What hooks said about the chunks in execution, each (B, ...) float64; NaN where they did not.
    """

    def __init__(
        self,
        spec: PolicySpec,
        planner: Planner,
        compute: Callable[[Sequence[int], Previous | None], Callable[[int], Planned]],
        rows: Sequence[PlannedRow],
    ) -> None:
        count = len(rows)
        self._spec, self._planner, self._compute, self._rows = spec, planner, compute, rows
        self.chunk = np.zeros((count, spec.horizon, spec.action_size), np.float32)
        self.id = np.full(count, -1)
        self.because = [""] * count
        self.info: dict[str, NDArray[np.float64]] = {}
        self._first = np.zeros(count, np.int64)  # step of the observation that the chunk answers
        self._start = np.zeros(count, np.int64)  # steps after it at which the chunk began to act
        self._generation = np.zeros(count, np.int64)
        self._asked: list[_Asked] = []
        self._count = 0

    def index(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Position in each row's chunk at a control step, (B,), and where the chunk reaches so far."""
        index = self._spec.first_action + step - self._first
        ready = (self.id >= 0) & (index < self._spec.horizon)
        return np.where(ready, index, self._spec.first_action), ready

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """Drop what is executed and what is being computed in the rows marked."""
        self.id[rows] = -1
        self._generation[rows] += 1

    def advance(self, step: int) -> None:
        """Take up chunks that are ready, and ask for those that are due.

        Args:
            step: Number of the control step that comes next.
        """
        self._take(step)
        missing = np.flatnonzero((self.id < 0) & ~self._awaited())
        if missing.size and not self._planner.busy():
            still = self._planner.waits or step == 0
            self._ask(missing, step, 0 if still else self._planner.delay())
            self._take(step)
        due = self._due(step)
        if due.size and not self._planner.busy():
            self._ask(due, step, self._planner.delay())
            self._take(step)

    def _due(self, step: int) -> NDArray[np.int64]:
        """Rows whose next chunk should be computed now."""
        executed = step - self._first - self._start
        soon = executed >= self._spec.executed_steps - self._planner.delay()
        # The same observation is not planned for twice.
        return np.flatnonzero((self.id >= 0) & ~self._awaited() & soon & (step > self._first))

    def _awaited(self) -> NDArray[np.bool_]:
        """Rows for which a chunk is being computed, (B,)."""
        awaited = np.zeros(len(self.id), np.bool_)
        for asked in self._asked:
            awaited[asked.rows[asked.generation == self._generation[asked.rows]]] = True
        return awaited

    def _ask(self, rows: NDArray[np.int64], step: int, delay: int) -> None:
        previous = None
        if (self.id[rows] >= 0).any():
            consumed = np.where(self.id[rows] >= 0, step - self._first[rows], self._spec.horizon)
            previous = Previous(self.chunk[rows], consumed)
        ticket = self._planner.ask(self._compute(rows.tolist(), previous), step, delay)
        asked = _Asked(rows, self._generation[rows].copy(), step, self._count, ticket, recorded=False)
        self._count += 1
        if self._planner.waits or step == 0:  # nothing moves before the first chunk
            self._record(asked, ticket.wait(), delay, step)
        self._asked.append(asked)

    def _take(self, step: int) -> None:
        waiting = []
        for asked in self._asked:
            try:
                done = asked.ticket.take(step)
            except PolicyAwayError as error:
                if self._planner.waits:
                    raise
                for row in asked.rows:  # `advance` asks again, with what is seen then
                    self.because[row] = error.because
                continue
            if done is None:
                waiting.append(asked)
            else:
                self._use(asked, done, step)
        self._asked = waiting

    def _use(self, asked: _Asked, done: Planned, step: int) -> None:
        """Take up chunks that may act now, in rows that still want them."""
        if not asked.recorded:
            self._record(asked, done, step - asked.step, step)
        valid = asked.generation == self._generation[asked.rows]
        rows = asked.rows[valid]
        self.chunk[rows] = done.chunk[valid]
        for key, value in done.info.items():
            nothing = np.full((len(self.id), *value.shape[1:]), np.nan)
            self.info[key] = self.info.get(key, nothing).copy()  # records may hold the last one
            self.info[key][rows] = value[valid]
        self.id[rows], self._first[rows], self._start[rows] = asked.id, asked.step, step - asked.step
        for row in asked.rows:
            self.because[row] = ""

    def _record(self, asked: _Asked, done: Planned, delay: int, step: int) -> None:
        """Write chunks down; of planners that wait at once, so that a row cut off has its next chunk."""
        asked.recorded = True
        for place, number in enumerate(asked.rows):
            if asked.generation[place] != self._generation[number]:
                continue
            chunk = Chunk(
                id=asked.id,
                first_step=asked.step,
                actions=done.chunk[place],
                noise=None if done.noise is None else done.noise[place],
                delay=delay,
                candidates=None if done.candidates is None else done.candidates[place],
                index=None if done.index is None else int(done.index[place]),
            )
            self._rows[number].keep(chunk, step)
