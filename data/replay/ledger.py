"""Which episodes a replay holds, and where; the oldest leave first, always whole."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from data.replay.recording import Recording


@dataclass(frozen=True)
class Held:
    """One episode in a replay; rows and transitions are counted from the replay's beginning.

    Attributes:
        id: Which episode.
        task: The task in words.
        version: Learner step of the policy that acted; None for data that does not grow stale.
        row: Its first row.
        rows: Its rows, T + 1.
        number: Its first transition.
        transitions: How many it has.
        stamp: Mark on its rows by which a mapped file shows whether they are still this episode's.
    """

    id: str
    task: str
    version: int | None
    row: int
    rows: int
    number: int
    transitions: int
    stamp: int


@dataclass(frozen=True, eq=False)
class EpisodeTable:
    """The E episodes of a replay as arrays, oldest first.

    Attributes:
        number: First transition of each, (E,).
        transitions: How many each has, (E,).
        task: The task in words, (E,) of text.
        version: Learner step, (E,); -1 where the data does not grow stale.
    """

    number: NDArray[np.int64]
    transitions: NDArray[np.int64]
    task: NDArray[np.str_]
    version: NDArray[np.int64]


class Ledger:
    """Counts rows and transitions that came and went.

    Args:
        capacity: Rows there is room for.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: deque[Held] = deque()
        self.rows = 0
        """Rows that ever came in."""
        self.numbers = 0
        """Transitions that ever came in."""
        self.first_row = 0
        """Oldest row still held; the next one to come when there is none."""
        self.first_number = 0
        """Oldest transition still held; the next one to come when there is none."""
        self.revision = 0
        self._table: tuple[int, EpisodeTable] | None = None

    def make_room(self, rows: int) -> None:
        """Let the oldest episodes go until so many rows are free."""
        while self.capacity - (self.rows - self.first_row) < rows:
            self.held.popleft()
            self._look_back()

    def plan(
        self, recordings: Sequence[Recording], transitions: NDArray[np.int64], *, marked: bool
    ) -> list[Held]:
        """Where episodes will lie that come next, with how many transitions each has, (E,).

        Args:
            recordings: The episodes.
            transitions: (E,).
            marked: Whether their rows get a mark of their own.
        """
        row, number, planned = self.rows, self.numbers, []
        for one, count in zip(recordings, transitions.tolist(), strict=True):
            stamp = uuid4().int >> 65 if marked else 0
            planned.append(Held(one.id, one.task, one.version, row, len(one) + 1, number, count, stamp))
            row, number = row + len(one) + 1, number + count
        return planned

    def enter(self, episodes: Sequence[Held]) -> None:
        """Add episodes, whose rows and transitions follow on those that are there."""
        self.held.extend(episodes)
        self.rows = episodes[-1].row + episodes[-1].rows
        self.numbers = episodes[-1].number + episodes[-1].transitions
        self._look_back()
        self.revision += 1

    def table(self) -> EpisodeTable:
        """The episodes as arrays."""
        if self._table is None or self._table[0] != self.revision:
            columns = EpisodeTable(
                number=np.array([one.number for one in self.held], np.int64),
                transitions=np.array([one.transitions for one in self.held], np.int64),
                task=np.array([one.task for one in self.held], np.str_),
                version=np.array([-1 if one.version is None else one.version for one in self.held], np.int64),
            )
            self._table = (self.revision, columns)
        return self._table[1]

    def state(self) -> dict[str, Any]:
        """Everything, with JSON types only."""
        return {"rows": self.rows, "numbers": self.numbers, "held": [asdict(one) for one in self.held]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` gave."""
        self.rows, self.numbers = int(state["rows"]), int(state["numbers"])
        self.held = deque(Held(**one) for one in state["held"])
        self._look_back()
        self.revision += 1

    def _look_back(self) -> None:
        self.first_row = self.held[0].row if self.held else self.rows
        self.first_number = self.held[0].number if self.held else self.numbers
