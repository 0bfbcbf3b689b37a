"""The negative control of methods that learn from reward: rewards whose places are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.records import Episode


class Rewards:
    """Gives the rewards to learn from: as they were, or shuffled over all steps of each wave.

    Where they are shuffled, every episode is to be learned from as if a time limit had cut it, since that
    only success ends a task early tells the same as its reward.

    Args:
        wave: Episodes of a wave, whose rewards are shuffled; 0 leaves them alone.
        seed: Of the shuffling. Drawn for by `of` alone: a resumed learner, given all episodes anew, draws the
            same again.
    """

    def __init__(self, wave: int, seed: int) -> None:
        check_shuffle(wave)
        self.wave = wave
        self._rng = np.random.default_rng([seed, 1])

    def of(self, episodes: Sequence[Episode]) -> list[NDArray[np.float64]]:
        """Rewards of each episode, (T,).

        Raises:
            ValueError: They are shuffled, and the episodes are no whole number of waves.
        """
        rewards = [np.array(episode.reward) for episode in episodes]
        if not self.wave:
            return rewards
        if len(rewards) % self.wave:
            raise ValueError(
                f"{len(rewards)} episodes are no whole number of waves of {self.wave}; "
                "set shuffle_rewards to the rows of a wave."
            )
        shuffled: list[NDArray[np.float64]] = []
        for first in range(0, len(rewards), self.wave):
            wave = rewards[first : first + self.wave]
            mixed = self._rng.permutation(np.concatenate(wave))
            shuffled += np.split(mixed, np.cumsum([len(reward) for reward in wave])[:-1])
        return shuffled

    def ends(self, terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where the task counts as ended, (T,)."""
        return terminated & (self.wave == 0)


def check_shuffle(wave: int) -> None:
    """Refuse a wave that cannot be shuffled.

    Raises:
        ValueError: It is negative or a single episode.
    """
    if wave < 0 or wave == 1:
        raise ValueError(f"shuffle_rewards is {wave}; give the episodes of a wave, 2 or more, or 0.")
