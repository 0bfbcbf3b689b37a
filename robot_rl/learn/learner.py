"""The contract of a learner: one object that runs in process, in a process of its own, or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from data.records import Episode


class Learner(ABC):
    """Learns from recorded episodes.

    `state` and `load_state` are exact: a learner rebuilt from the same configuration, given the same episodes
    in the same order and the saved state, goes on bit-equal.
    """

    @abstractmethod
    def add(self, episodes: Sequence[Episode]) -> None:
        """Take episodes into the replay."""

    @abstractmethod
    def update(self, count: int) -> Mapping[str, float]:
        """Do `count` updates and return mean diagnostics by name."""

    @abstractmethod
    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the tensors that the acting side needs, by name."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that further updates depend on, replay aside, by name."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: The state belongs to another configuration.
        """
