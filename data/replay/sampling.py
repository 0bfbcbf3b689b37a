"""Ways to choose transitions from a replay, besides uniformly.

Each has ``draw(replay, count, rng)``; pass it to `ReplayBuffer.sample`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from data.replay.storage import uniform
from data.replay.sum_tree import SumTree

if TYPE_CHECKING:
    from data.replay.buffer import ReplayBuffer
    from data.replay.ledger import EpisodeTable

type Draws = tuple[NDArray[np.int64], NDArray[np.float32] | None]


class Sampler(Protocol):
    """Chooses transitions."""

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Numbers of `count` transitions of a replay that is not empty, with importance weights or None."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every transition as often as every other."""

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Choose transitions."""
        return uniform(replay.first, len(replay), count, rng), None


@dataclass(frozen=True)
class PerTask:
    """Every task as often as its share says, and within a task every transition as often as every other.

    Attributes:
        shares: By task in words, at least 0; of tasks that are held and not named, none is drawn. The same
            for every task that is held when None.
    """

    shares: Mapping[str, float] | None = None

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Choose transitions.

        Raises:
            ValueError: No task that is held has a share.
        """
        table = replay.episodes()
        tasks, of = np.unique(table.task, return_inverse=True)
        wanted = np.array([1.0 if self.shares is None else self.shares.get(str(t), 0.0) for t in tasks])
        if wanted.min() < 0 or not wanted.sum() > 0:
            raise ValueError(
                f"Shares {dict(self.shares or {})} leave nothing to draw among tasks {tasks.tolist()}; give "
                "at least one of them a share above 0 and none a negative one."
            )
        of_task = np.bincount(of, table.transitions, len(tasks))
        return _by_episode(table, (wanted / of_task)[of], count, rng), None


@dataclass(frozen=True)
class Recent:
    """The newest transitions most often: half as often for every `half_life` transitions of age.

    Attributes:
        half_life: In transitions, above 0.
    """

    half_life: float

    def __post_init__(self) -> None:
        """Check the half-life."""
        if not 0 < self.half_life < math.inf:
            raise ValueError(f"half_life is {self.half_life}; it must be above 0 transitions, and finite.")

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Choose transitions: their age is geometric, cut at the oldest."""
        held = len(replay)
        rate = math.log(2.0) / self.half_life
        # Age a has probability proportional to exp(-rate a); inverted: F(a) = (1 - e^-ra) / (1 - e^-rN).
        age = np.floor(-np.log1p(rng.random(count) * np.expm1(-rate * held)) / rate).astype(np.int64)
        return replay.first + held - 1 - np.minimum(age, held - 1), None


@dataclass
class Fresh:
    """By staleness: how many learner steps ago the policy that acted was made.

    Episodes without a version, such as demonstrations, do not grow stale.

    Attributes:
        now: The learner's step; the learner moves it on.
        limit: Transitions that are staler are never drawn; HABC (arXiv 2606.17043) has 10,000.
        half_life: Drawn half as often for every so many steps of staleness; equally often when None.
    """

    now: int = 0
    limit: int | None = 10_000
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Check the half-life."""
        if self.half_life is not None and not 0 < self.half_life < math.inf:
            raise ValueError(
                f"half_life is {self.half_life}; it must be above 0 learner steps and finite, or None."
            )

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Choose transitions.

        Raises:
            ValueError: Everything that is held is staler than the limit.
        """
        table = replay.episodes()
        stale = np.where(table.version < 0, 0, self.now - table.version)
        weight = np.ones(len(stale)) if self.half_life is None else 0.5 ** (stale / self.half_life)
        if self.limit is not None:
            weight[stale > self.limit] = 0.0
        if not weight.sum() > 0:
            raise ValueError(
                f"All {len(stale)} episodes are staler than {self.limit} learner steps at step {self.now}; "
                "collect with a newer policy or raise the limit."
            )
        return _by_episode(table, weight, count, rng), None


class Prioritised:
    """In proportion to priority^alpha, with weights that correct for it.

    Schaul et al. 2016, arXiv 1511.05952, equation 1 and section 3.4.
    What came in since the last draw gets the greatest priority there was. Weights are divided by the greatest
    of the batch, not of the whole replay as in the paper.

    Args:
        replay: The replay it draws from.
        alpha: 0 draws uniformly, 1 in proportion to the priority.
        beta: 1 corrects fully for the unequal draws, 0 not at all.
        least: Added to every priority, so that none is 0.
    """

    def __init__(
        self, replay: ReplayBuffer, *, alpha: float = 0.6, beta: float = 0.4, least: float = 1e-6
    ) -> None:
        if not (alpha >= 0 and 0 <= beta <= 1 and least > 0):
            raise ValueError(
                f"alpha {alpha}, beta {beta} and least {least}: alpha >= 0, 0 <= beta <= 1 and least > 0."
            )
        self.alpha, self.beta, self.least = alpha, beta, least
        self._replay, self._tree = replay, SumTree(replay.capacity)
        self._greatest = 1.0
        self._first = self._next = 0

    def draw(self, replay: ReplayBuffer, count: int, rng: np.random.Generator) -> Draws:
        """Choose transitions, one from each of `count` equal parts of the total priority.

        Raises:
            ValueError: The replay is another one.
        """
        if replay is not self._replay:
            raise ValueError("These priorities belong to another replay; make one sampler for each.")
        self._follow()
        total = self._tree.total
        amounts = (np.arange(count) + rng.random(count)) * (total / count)
        slots = self._tree.find(np.minimum(amounts, np.nextafter(total, 0.0)))
        weight = (self._tree.get(slots) * (len(replay) / total)) ** -self.beta
        # A slot holds one of every `capacity` numbers; the one that is still held is meant.
        numbers = replay.first + (slots - replay.first) % replay.capacity
        return numbers, (weight / weight.max()).astype(np.float32)

    def update(self, numbers: NDArray[np.int64], priorities: NDArray[Any]) -> None:
        """Give transitions new priorities, such as |temporal difference|; those that left are passed over.

        Args:
            numbers: (B,), `Batch.number`.
            priorities: (B,), at least 0 and finite.

        Raises:
            ValueError: A priority is negative or not finite.
        """
        given = np.asarray(priorities, np.float64)
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise ValueError(f"Priorities from {given.min()} to {given.max()}; they must be finite and >= 0.")
        self._follow()
        still = numbers >= self._replay.first
        scaled = (given[still] + self.least) ** self.alpha
        self._greatest = max(self._greatest, float(scaled.max(initial=0.0)))
        self._tree.set(numbers[still] % self._replay.capacity, scaled)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: JSON facts and arrays by name."""
        facts = {"greatest": self._greatest, "first": self._first, "next": self._next}
        return {"facts": facts, "arrays": {"priorities": self._tree.state()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` gave, beside a replay whose state is of the same moment."""
        facts = state["facts"]
        self._greatest = float(facts["greatest"])
        self._first, self._next = int(facts["first"]), int(facts["next"])
        self._tree.load_state(state["arrays"]["priorities"])

    def _follow(self) -> None:
        """Take in what came to the replay and left it since the last time."""
        first, capacity = self._replay.first, self._replay.capacity
        after = first + len(self._replay)
        if (first, after) == (self._first, self._next):
            return
        self._tree.set(np.arange(self._first, min(first, self._next)) % capacity, 0.0)
        self._tree.set(np.arange(max(first, self._next), after) % capacity, self._greatest)
        self._first, self._next = first, after


def _by_episode(
    table: EpisodeTable, weight: NDArray[np.float64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Transitions, each as often as the weight of its episode (E,) says."""
    mass = np.cumsum(weight * table.transitions)
    amounts = rng.random(count) * mass[-1]
    # The first episode whose running mass exceeds the amount: never one of weight 0, whose mass adds nothing.
    episode = np.minimum(np.searchsorted(mass, amounts, side="right"), np.flatnonzero(weight)[-1])
    within = (rng.random(count) * table.transitions[episode]).astype(np.int64)
    return np.asarray(table.number[episode] + within)
