"""Replay for training: episodes go in, transitions or chunks come out.

Rows of observations are stored once, raw and contiguous; a transition is a pair of rows and what lies between
them, worked out when its episode comes in. So the next picture costs no second copy, and drawing a batch is a
few gathers without a loop. No transition crosses an episode, a pause or lost time.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from data.replay.checks import check_all
from data.replay.gather import gather
from data.replay.intake import Form, groups, transitions
from data.replay.ledger import EpisodeTable, Ledger
from data.replay.reach import Reach
from data.replay.recording import Draw, Recording
from data.replay.rows import Rows
from data.replay.state import restore, state_of
from data.replay.storage import uniform
from data.replay.transitions import Transitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from data.labels import Labels
    from data.records import Episode
    from data.replay.batch import Arrays, Batch
    from data.replay.sampling import Sampler
    from data.statistics import Scaling


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
        self._taken: dict[str, Any] = {
            "keys": None if keys is None else sorted(keys),
            "columns": list(columns),
            "draw": draw,
            "imitation": imitation,
        }
        self._rows = Rows(capacity, folder)
        self._transitions = Transitions(capacity)
        self._ledger = Ledger(capacity)

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
        return self._rows.nbytes + self._transitions.nbytes

    @property
    def forms(self) -> dict[str, Form]:
        """Shape and type of a row of all that is held, by what it is; empty before the first episode."""
        return dict(self._rows.forms)

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
        return self.add_all([episode], None if labels is None else [labels], version=version)

    def add_all(
        self,
        episodes: Iterable[Episode],
        labels: Iterable[Labels] | None = None,
        *,
        version: int | None = None,
    ) -> int:
        """Add several episodes, such as those of a wave, in less time than one by one.

        Args:
            episodes: The facts.
            labels: What the method makes of each; everything is replayed when None.
            version: As for `add`; so are the result and the errors. Nothing is held when one is refused.
        """
        given = list(episodes)
        made = [None] * len(given) if labels is None else list(labels)
        return self.extend(
            Recording.of(episode, of_it, version=version, **self._taken)
            for episode, of_it in zip(given, made, strict=True)
        )

    def extend(self, recordings: Iterable[Recording]) -> int:
        """Add episodes that are arrays already, many at once in less time than one by one.

        Returns:
            How many transitions they gave. Those that give none are not held.

        Raises:
            ValueError: As for `add`.
        """
        given = list(recordings)
        check_all(given, self._rows.forms, self.capacity, imitation=self._taken["imitation"])
        return sum(map(self._add, groups(given, self.capacity)))

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
        if not len(self):
            raise ValueError(
                f"The replay holds no transition; add episodes that the method learns from (draw is "
                f"{self._taken['draw']!r}; methods without a critic need 'keep')."
            )
        weight = None
        if sampler is None:
            numbers = uniform(self.first, len(self), count, rng)
        else:
            numbers, weight = sampler.draw(self, count, rng)
        batch = self.get(numbers, into)
        batch.weight = weight
        return batch if scalings is None else batch.normalised(scalings)

    def room(self, count: int) -> tuple[Arrays, Arrays]:
        """Arrays for the observations and next observations of `count` transitions, by key, not filled."""
        return self._rows.room(count)

    def get(self, numbers: NDArray[np.int64], into: tuple[Arrays, Arrays] | None = None) -> Batch:
        """The transitions of these numbers, (B,) from `first` to `first + len(replay) - 1`.

        Args:
            numbers: (B,).
            into: Where to put observations and next observations, by key, each (B, ...); into new arrays when
                None.
        """
        found = self._transitions.take(numbers, self.first)
        return gather(self._rows, found, numbers, self.reach, into)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: JSON facts and arrays by name.

        Of a replay in a folder the rows stay in its files, which are flushed; the state names them.
        """
        return state_of((self._rows, self._transitions, self._ledger), self._settings())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` gave, on a replay made with the same settings.

        Raises:
            ValueError: The state is of a replay with other settings, or rows in the folder were overwritten
                since.
            FileNotFoundError: A file of the folder is missing.
        """
        restore((self._rows, self._transitions, self._ledger), self._settings(), state)

    def _settings(self) -> dict[str, Any]:
        return {"capacity": self.capacity, **asdict(self.reach), **self._taken}

    def _add(self, group: Sequence[Recording]) -> int:
        intake = transitions(group, self.reach)
        if not intake.transitions.all():
            useful = [one for one, n in zip(group, intake.transitions, strict=True) if n]
            return self._add(useful) if useful else 0
        self._rows.make(group[0])
        self._ledger.make_room(sum(len(one) + 1 for one in group))
        entered = self._ledger.plan(group, intake.transitions, marked=self._rows.mapped)
        for held, recording in zip(entered, group, strict=True):
            self._rows.write(held, recording)
        self._transitions.put(self._ledger.numbers, self._ledger.rows, intake)
        self._ledger.enter(entered)
        return int(intake.transitions.sum())
