"""Replay for training: episodes go in, transitions or chunks come out.

Rows of observations are stored once, raw and contiguous; a transition is a pair of rows and what lies between
them, worked out when its episode comes in. So the next picture costs no second copy, and drawing a batch is a
few gathers without a loop. No transition crosses an episode, a pause or lost time.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from data.replay.batch import Arrays, Batch
from data.replay.intake import ACTION, COLUMN, IMITATION, OBSERVATION, Form, check, forms, transitions
from data.replay.ledger import EpisodeTable, Held, Ledger
from data.replay.reach import Reach
from data.replay.recording import Draw, Recording
from data.replay.storage import Rings, put, take, uniform

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from data.labels import Labels
    from data.records import Episode
    from data.statistics import Scaling


class Sampler(Protocol):
    """Chooses transitions."""

    def draw(
        self, replay: ReplayBuffer, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Numbers of `count` transitions of a replay that is not empty, with importance weights or None."""
        ...


class ReplayBuffer:
    """Holds whole episodes up to a number of rows; the oldest leave first.

    Args:
        capacity: Most rows to hold: an episode of T steps has T + 1.
        chunk: Actions L of a chunk; None for single actions.
        n_step: Chunks (or single steps) whose rewards are summed before bootstrapping.
        gamma: Discount per step.
        keys: Observations to hold; all of them when None.
        columns: Columns of the labels to hold and to hand out with a batch, such as ``("bc_weight",)``.
        draw: Where transitions start: ``"critic"`` where a critic learns, ``"keep"`` where the method has any
            use for the step.
        imitation: Hold the action to imitate beside the executed one, as `Batch.imitation_action`: what a
            person meant where one acted (`data.labels.imitation_actions`).
        folder: Where files hold the rows, for more than fits in memory; it must be empty. In memory when
            None.
    """

    def __init__(
        self,
        capacity: int,
        *,
        chunk: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        keys: Collection[str] | None = None,
        columns: Collection[str] = (),
        draw: Draw = "critic",
        imitation: bool = False,
        folder: Path | str | None = None,
    ) -> None:
        if capacity < 2:
            raise ValueError(f"capacity is {capacity} rows; an episode of one step already has 2.")
        self.reach = Reach(chunk, n_step, gamma)
        self.capacity = capacity
        self._keys, self._columns, self._draw = keys, tuple(columns), draw
        self._imitation = imitation
        self._rings = Rings(capacity, folder)
        self._ledger = Ledger(capacity)
        self._forms: dict[str, Form] = {}
        self._observed: list[tuple[str, NDArray[Any]]] = []
        self._carried: list[tuple[str, NDArray[Any]]] = []
        self._whole = np.zeros((5, capacity), np.int64)
        self._real = np.zeros((2, capacity), np.float32)
        self._flags = np.zeros((2, capacity), bool)

    def __len__(self) -> int:
        """Number of transitions that may be drawn."""
        return self._ledger.numbers - self._ledger.first_number

    @property
    def first(self) -> int:
        """Number of the oldest transition; those held are `first` to `first + len(replay) - 1`."""
        return self._ledger.first_number

    @property
    def revision(self) -> int:
        """Changes whenever episodes come or go."""
        return self._ledger.revision

    @property
    def nbytes(self) -> int:
        """Bytes of everything held, in memory and in files, whether filled yet or not."""
        return self._rings.nbytes + self._whole.nbytes + self._real.nbytes + self._flags.nbytes

    @property
    def forms(self) -> dict[str, Form]:
        """Shape and type of a row of all that is held, by what it is; empty before the first episode."""
        return dict(self._forms)

    @property
    def episode_ids(self) -> list[str]:
        """The episodes held, oldest first."""
        return [held.id for held in self._ledger.held]

    def episodes(self) -> EpisodeTable:
        """The episodes held, as arrays, oldest first."""
        return self._ledger.table()

    def add(self, episode: Episode, labels: Labels | None = None, *, version: int | None = None) -> int:
        """Add an episode.

        Args:
            episode: The facts.
            labels: What the method makes of it; everything is replayed when None.
            version: Learner step of the policy that acted, for samplers that mind staleness.

        Returns:
            How many transitions it gave. An episode that gives none is not held.

        Raises:
            KeyError: An observation or column is missing.
            ValueError: The episode is longer than the replay, has other shapes than those before it, or a
                value is not finite.
        """
        recording = Recording.of(
            episode,
            labels,
            keys=self._keys,
            columns=self._columns,
            draw=self._draw,
            imitation=self._imitation,
            version=version,
        )
        return self.extend([recording])

    def extend(self, recordings: Iterable[Recording]) -> int:
        """Add episodes that are arrays already, many at once in less time than one by one.

        Returns:
            How many transitions they gave. Those that give none are not held.

        Raises:
            ValueError: As for `add`.
        """
        given = list(recordings)
        known = forms(given[0]) if given else {}
        for recording in given:
            if (recording.imitation_action is not None) != self._imitation:
                raise ValueError(
                    f"Episode {recording.id!r} has {'no' if self._imitation else 'an'} imitation_action, but "
                    f"the replay was made with imitation={self._imitation}; they must agree."
                )
            check(recording, self._forms or known, self.capacity)
        total, held = 0, 0
        group: list[Recording] = []
        for recording in given:
            if held + len(recording) + 1 > self.capacity:
                total += self._add(group)
                group, held = [], 0
            group.append(recording)
            held += len(recording) + 1
        return total + self._add(group)

    def sample(
        self,
        count: int,
        rng: np.random.Generator,
        sampler: Sampler | None = None,
        *,
        scalings: Mapping[str, Scaling] | None = None,
        into: tuple[Arrays, Arrays] | None = None,
    ) -> Batch:
        """Draw transitions, with replacement.

        Args:
            count: B.
            rng: The only source of chance: the same generator on the same content gives the same batch.
            sampler: Chooses them; uniformly when None.
            scalings: What to normalise, by observation key or ``"action"``; nothing when None.
            into: As for `get`.

        Raises:
            ValueError: There is nothing to draw from.
        """
        first, held = self._ledger.first_number, self._ledger.numbers - self._ledger.first_number
        if not held:
            raise ValueError(
                f"The replay holds no transition; add episodes that the method learns from (draw is "
                f"{self._draw!r}; methods without a critic need 'keep')."
            )
        weight = None
        if sampler is None:
            numbers = uniform(first, held, count, rng)
        else:
            numbers, weight = sampler.draw(self, count, rng)
        batch = self.get(numbers, into)
        batch.weight = weight
        return batch if scalings is None else batch.normalised(scalings)

    def room(self, count: int) -> tuple[Arrays, Arrays]:
        """Arrays for the observations and next observations of `count` transitions, by key, not filled."""
        forms = [(key, (count, *ring.shape[1:]), ring.dtype) for key, ring in self._observed]
        now = {key: np.empty(shape, dtype) for key, shape, dtype in forms}
        return now, {key: np.empty(shape, dtype) for key, shape, dtype in forms}

    def get(self, numbers: NDArray[np.int64], into: tuple[Arrays, Arrays] | None = None) -> Batch:
        """The transitions of these numbers, (B,) from `first` to `first + len(replay) - 1`.

        Args:
            numbers: (B,).
            into: Where to put observations and next observations, by key, each (B, ...); into new arrays when
                None.
        """
        now, later = into or self.room(len(numbers))
        # Numbers go on for ever and slots wrap: shifted to lie within two rounds, `wrap` folds them to one.
        first = self._ledger.first_number
        slots = numbers - (first - first % self.capacity)
        whole = self._whole.take(slots, 1, None, "wrap")
        real = self._real.take(slots, 1, None, "wrap")
        flags = self._flags.take(slots, 1, None, "wrap")
        row, after, length, actor_length, steps = whole
        for key, ring in self._observed:
            take(ring, row, now[key])
            take(ring, after, later[key])
        acted = row if self.reach.chunk is None else self._action_rows(row, length, actor_length)
        return Batch(
            now,
            later,
            take(self._rings.arrays[ACTION], acted),
            real[0],
            real[1],
            flags[0],
            flags[1],
            length,
            actor_length,
            steps,
            {key: take(ring, row) for key, ring in self._carried},
            numbers,
            imitation_action=take(self._rings.arrays[IMITATION], acted) if self._imitation else None,
        )

    def _action_rows(
        self, row: NDArray[np.int64], length: NDArray[np.int64], actor_length: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        last = np.maximum(length, actor_length)[:, None] - 1
        return np.asarray((row[:, None] + np.minimum(np.arange(self.reach.actions), last)) % self.capacity)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: JSON facts and arrays by name.

        Of a replay in a folder the rows stay in its files, which are flushed; the state names them.
        """
        used = min(self._ledger.rows, self.capacity)
        arrays: dict[str, NDArray[Any]] = {
            "whole": self._whole[:, :used],
            "real": self._real[:, :used],
            "flags": self._flags[:, :used],
        }
        if self._rings.folder is None:
            arrays |= {name: ring[:used] for name, ring in self._rings.arrays.items()}
        else:
            self._rings.flush()
        facts = {
            "settings": self._settings(),
            "forms": {name: [list(shape), dtype.str] for name, (shape, dtype) in self._forms.items()},
            "ledger": self._ledger.state(),
        }
        return {"facts": facts, "arrays": {name: array.copy() for name, array in arrays.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` gave, on a replay made with the same settings.

        Raises:
            ValueError: The state is of a replay with other settings, or rows in the folder were overwritten
                since.
            FileNotFoundError: A file of the folder is missing.
        """
        facts, arrays = state["facts"], state["arrays"]
        if facts["settings"] != self._settings():
            raise ValueError(
                f"The state is of a replay with {facts['settings']}, this one has {self._settings()}; "
                "make it with the same settings."
            )
        self._forms = {name: (tuple(shape), np.dtype(kind)) for name, (shape, kind) in facts["forms"].items()}
        self._ledger.load_state(facts["ledger"])
        if self._forms and self._rings.folder is not None:
            self._rings.reopen(self._forms)
            self._check_stamps()
        elif self._forms:
            self._rings.make(self._forms)
            for name, ring in self._rings.arrays.items():
                ring[: len(arrays[name])] = arrays[name]
        self._name_rings()
        for name in ("whole", "real", "flags"):
            getattr(self, f"_{name}")[:, : arrays[name].shape[1]] = arrays[name]

    def _settings(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            **asdict(self.reach),
            "keys": None if self._keys is None else sorted(self._keys),
            "columns": list(self._columns),
            "draw": self._draw,
            "imitation": self._imitation,
        }

    def _name_rings(self) -> None:
        arrays = self._rings.arrays.items()
        self._observed = [
            (name.removeprefix(OBSERVATION), a) for name, a in arrays if name.startswith(OBSERVATION)
        ]
        self._carried = [(name.removeprefix(COLUMN), a) for name, a in arrays if name.startswith(COLUMN)]

    def _check_stamps(self) -> None:
        for held in self._ledger.held:
            if not self._rings.marked(held.row, held.rows, held.stamp):
                raise ValueError(
                    f"Rows of episode {held.id!r} in {self._rings.folder} were overwritten after this state "
                    "was taken; take the folder's latest state, or fill a new replay from the episodes."
                )

    def _add(self, group: Sequence[Recording]) -> int:
        if not group:
            return 0
        intake = transitions(group, self.reach)
        if not intake.transitions.all():
            return self._add([one for one, n in zip(group, intake.transitions, strict=True) if n])
        if not self._forms:
            found = forms(group[0])
            self._rings.make(found)
            self._forms = found
            self._name_rings()
        self._ledger.make_room(sum(len(one) + 1 for one in group))
        entered = self._ledger.plan(group, intake.transitions, marked=self._rings.folder is not None)
        for held, recording in zip(entered, group, strict=True):
            self._write(held, recording)
        slot = self._ledger.numbers % self.capacity
        intake.whole[:2] = (intake.whole[:2] + self._ledger.rows) % self.capacity
        for ring, values in (
            (self._whole, intake.whole),
            (self._real, intake.real),
            (self._flags, intake.flags),
        ):
            put(ring.T, slot, values.T)
        self._ledger.enter(entered)
        return int(intake.transitions.sum())

    def _write(self, held: Held, recording: Recording) -> None:
        start = held.row % self.capacity
        with self._rings.marking(held.row, held.rows, held.stamp):
            put(self._rings.arrays[ACTION], start, recording.action)
            if recording.imitation_action is not None:
                put(self._rings.arrays[IMITATION], start, recording.imitation_action)
            for key, ring in self._observed:
                put(ring, start, recording.observations[key])
            for key, ring in self._carried:
                put(ring, start, recording.columns[key])
