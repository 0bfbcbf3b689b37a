"""The rows of a replay: what was observed and done at each step, stored once, raw and contiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.replay.intake import ACTION, COLUMN, IMITATION, OBSERVATION, Form, forms
from data.replay.storage import Rings, put, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.replay.batch import Arrays
    from data.replay.ledger import Held
    from data.replay.recording import Recording


class Rows:
    """Rings for observations, actions and columns of labels; made when an episode shows their forms.

    Args:
        capacity: Rows of each.
        folder: Where files hold them; in memory when None.
    """

    def __init__(self, capacity: int, folder: Path | str | None) -> None:
        self.capacity = capacity
        self._rings = Rings(capacity, folder)
        self._observed: list[tuple[str, NDArray[Any]]] = []
        self._carried: list[tuple[str, NDArray[Any]]] = []
        self.forms: dict[str, Form] = {}
        """Shape and type of a row of each ring; empty before the first episode."""

    @property
    def nbytes(self) -> int:
        """Bytes of all rings, in memory and in files."""
        return self._rings.nbytes

    @property
    def mapped(self) -> bool:
        """Whether they lie in files."""
        return self._rings.folder is not None

    def make(self, recording: Recording) -> None:
        """Make rings for episodes like this one, unless they are there; errors as of `Rings.make`."""
        if not self.forms:
            found = forms(recording)
            self._rings.make(found)
            self.forms = found
            self._name()

    def write(self, held: Held, recording: Recording) -> None:
        """Write an episode where it belongs."""
        start = held.row % self.capacity
        with self._rings.marking(held.row, held.rows, held.stamp):
            put(self._rings.arrays[ACTION], start, recording.action)
            if recording.imitation_action is not None:
                put(self._rings.arrays[IMITATION], start, recording.imitation_action)
            for key, ring in self._observed:
                put(ring, start, recording.observations[key])
            for key, ring in self._carried:
                put(ring, start, recording.columns[key])

    def room(self, count: int) -> tuple[Arrays, Arrays]:
        """As `ReplayBuffer.room`."""
        forms = [(key, (count, *ring.shape[1:]), ring.dtype) for key, ring in self._observed]
        now = {key: np.empty(shape, dtype) for key, shape, dtype in forms}
        return now, {key: np.empty(shape, dtype) for key, shape, dtype in forms}

    def observe(self, row: NDArray[np.int64], after: NDArray[np.int64], now: Arrays, later: Arrays) -> None:
        """Copy the observations of two rows of each transition, (B,), into arrays by key."""
        for key, ring in self._observed:
            take(ring, row, now[key])
            take(ring, after, later[key])

    def actions(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Executed actions, (*rows, A)."""
        return take(self._rings.arrays[ACTION], rows)

    def imitation_actions(self, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Actions to imitate, (*rows, A); None where none are held."""
        ring = self._rings.arrays.get(IMITATION)
        return None if ring is None else take(ring, rows)

    def columns(self, rows: NDArray[np.int64]) -> Arrays:
        """Columns of labels, by name, (B, ...)."""
        return {key: take(ring, rows) for key, ring in self._carried}

    def arrays(self, used: int) -> Arrays:
        """The first `used` rows by ring, not copied; nothing of files, which are flushed instead."""
        if self.mapped:
            self._rings.flush()
            return {}
        return {name: ring[:used] for name, ring in self._rings.arrays.items()}

    def load(self, forms: dict[str, Form], arrays: Mapping[str, NDArray[Any]], held: Iterable[Held]) -> None:
        """Go back to rows of these forms that hold these episodes.

        Args:
            forms: As in `forms`.
            arrays: As `arrays` gave them.
            held: The episodes.

        Raises:
            ValueError: A file has another form, or rows of an episode were overwritten.
            FileNotFoundError: A file is missing.
        """
        self.forms = forms
        if forms and self.mapped:
            self._rings.reopen(forms)
            self._check_stamps(held)
        elif forms:
            self._rings.make(forms)
            for name, ring in self._rings.arrays.items():
                ring[: len(arrays[name])] = arrays[name]
        self._name()

    def _name(self) -> None:
        arrays = self._rings.arrays.items()
        self._observed = [
            (name.removeprefix(OBSERVATION), a) for name, a in arrays if name.startswith(OBSERVATION)
        ]
        self._carried = [(name.removeprefix(COLUMN), a) for name, a in arrays if name.startswith(COLUMN)]

    def _check_stamps(self, held: Iterable[Held]) -> None:
        for one in held:
            if not self._rings.marked(one.row, one.rows, one.stamp):
                raise ValueError(
                    f"Rows of episode {one.id!r} in {self._rings.folder} were overwritten after this state "
                    "was taken; take the folder's latest state, or fill a new replay from the episodes."
                )
