"""Transitions of recorded episodes, ready for off-policy updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Transitions:
    """A batch of B n-step transitions; actions in robot units, inputs not normalised.

    Attributes:
        x: Input vectors, (B, D).
        base: Base action at x, (B, A).
        action: Executed action, (B, A).
        next_x: Input vectors after n steps, (B, D).
        next_base: Base action at next_x as computed when collected, (B, A).
        reward: Discounted sum of the n rewards, (B,).
        discount: gamma^n, or 0 where the task ended within the n steps, (B,).
    """

    x: NDArray[np.float32]
    base: NDArray[np.float32]
    action: NDArray[np.float32]
    next_x: NDArray[np.float32]
    next_base: NDArray[np.float32]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]


def n_step(
    reward: NDArray[np.float64], steps: int, gamma: float, *, terminated: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns, bootstrap rows and bootstrap discounts of every step of one episode.

    Args:
        reward: (T,).
        steps: n; cut at the end of the episode.
        gamma: Discount per step.
        terminated: Whether the last step ended the task; a time limit does not (its target bootstraps).

    Returns:
        Sum of gamma^j r_{t+j}; row t + n of the observation to bootstrap from; gamma^n or 0. Each (T,).
    """
    length = len(reward)
    returns = np.zeros(length)
    for j in range(min(steps, length)):
        returns[: length - j] += gamma**j * reward[j:]
    ends = np.minimum(np.arange(length) + steps, length)
    discount = gamma ** (ends - np.arange(length))
    if terminated:
        discount = np.where(ends == length, 0.0, discount)
    return returns, ends, discount


class Replay:
    """Rows of observations and the transitions between them, in the order they were added.

    Args:
        capacity: Most rows to hold; T + 1 for an episode of T steps.
        inputs: D.
        actions: A.
        steps: n of the n-step returns.
        gamma: Discount per step.
    """

    def __init__(self, capacity: int, inputs: int, actions: int, steps: int, gamma: float) -> None:
        self._steps, self._gamma = steps, gamma
        self._x = np.zeros((capacity, inputs), np.float32)
        self._base = np.zeros((capacity, actions), np.float32)
        self._action = np.zeros((capacity, actions), np.float32)
        self._row = np.zeros(capacity, np.int64)
        self._next = np.zeros(capacity, np.int64)
        self._reward = np.zeros(capacity, np.float32)
        self._discount = np.zeros(capacity, np.float32)
        self._rows = 0
        self._size = 0

    def __len__(self) -> int:
        """Number of transitions."""
        return self._size

    def add(
        self,
        x: NDArray[np.float32],
        base: NDArray[np.float32],
        action: NDArray[np.float64],
        reward: NDArray[np.float64],
        *,
        terminated: bool,
    ) -> None:
        """Add one episode: x (T + 1, D), base (T + 1, A), action (T, A), reward (T,).

        Raises:
            ValueError: There is no room left, or a value is not finite.
        """
        steps = len(action)
        rows = slice(self._rows, self._rows + steps + 1)
        if rows.stop > len(self._x):
            raise ValueError(f"The replay holds {len(self._x)} rows; {rows.stop} are needed.")
        for name, value in (("x", x), ("base", base), ("action", action), ("reward", reward)):
            if not np.isfinite(value).all():
                raise ValueError(
                    f"{name} of an episode holds values that are not finite; it is not learned from."
                )
        self._x[rows], self._base[rows] = x, base
        returns, ends, discount = n_step(reward, self._steps, self._gamma, terminated=terminated)
        new = slice(self._size, self._size + steps)
        self._row[new] = np.arange(rows.start, rows.start + steps)
        self._next[new] = rows.start + ends
        self._action[new], self._reward[new], self._discount[new] = action, returns, discount
        self._rows = rows.stop
        self._size = new.stop

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw transitions uniformly, with replacement."""
        index = generator.integers(0, self._size, count)
        row, after = self._row[index], self._next[index]
        return Transitions(
            x=self._x[row],
            base=self._base[row],
            action=self._action[index],
            next_x=self._x[after],
            next_base=self._base[after],
            reward=self._reward[index],
            discount=self._discount[index],
        )
