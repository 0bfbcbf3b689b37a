"""The tasks that a refiner learned from, told apart by their texts.

A base of several tasks reads the text. What is added to it must tell the tasks apart too, or it pulls one of
them towards another. Words count, case and punctuation do not, as in the text encoder of the flow policy.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from policies.flow_config import TASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskTexts:
    """Texts of the tasks that something was fitted on.

    Attributes:
        texts: one per task; with none or one there is nothing to tell apart.
    """

    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: Iterable[str], *, reads_task: bool) -> Self:
        """Collect the texts of episodes or demonstrations.

        Args:
            told: texts, each as often as it occurs.
            reads_task: whether the policy reads the text. If not, and there is one text only, none is kept.
        """
        by_words = {_words(text): text for text in sorted(told, reverse=True)}
        texts = tuple(sorted(by_words.values()))
        return cls(texts if reads_task or len(texts) > 1 else ())

    @property
    def size(self) -> int:
        """Length of the vector that stands for a task: the number of tasks, 0 where there is only one."""
        return len(self.texts) if len(self.texts) > 1 else 0

    @property
    def count(self) -> int:
        """Number of tasks, at least 1."""
        return max(len(self.texts), 1)

    @property
    def keys(self) -> tuple[str, ...]:
        """What is read of an observation for it: the text, or nothing."""
        return (TASK,) if self.texts else ()

    def numbers(self, told: Sequence[str]) -> NDArray[np.int64]:
        """Number of each row's task, (B,).

        A text other than the only known one is taken for it, with one warning.

        Args:
            told: text per row.

        Raises:
            ValueError: a text is none of several known ones.
        """
        if not self.texts:
            return np.zeros(len(told), np.int64)
        known = {_words(text): number for number, text in enumerate(self.texts)}
        for text in told:
            if _words(text) not in known:
                if len(self.texts) > 1:
                    raise ValueError(
                        f"the task {text!r} is none of those that this refiner was fitted on: "
                        f"{', '.join(map(repr, self.texts))}. Tell one of them, or refine again with "
                        "demonstrations, or a warm-up, that have it"
                    )
                _warn(text, self.texts[0])
        return np.array([known.get(_words(text), 0) for text in told], np.int64)

    def one_hot(self, told: Sequence[str]) -> NDArray[np.float32]:
        """1 at the number of each row's task and 0 elsewhere, (B, `size`); see `numbers`."""
        numbers = self.numbers(told)
        vectors: NDArray[np.float32] = np.eye(self.count, dtype=np.float32)[numbers][:, : self.size]
        return vectors

    def read(self, observation: Mapping[str, Any]) -> list[str]:
        """The texts of an observation, one per row.

        Raises:
            ValueError: it has none, and tasks are to be told apart.
        """
        found = observation.get(TASK)
        if found is not None:
            return list(found)
        if self.texts:
            raise ValueError(
                f"the observation lacks the task's text under {TASK!r}, by which this refiner tells "
                f"{len(self.texts)} tasks apart"
            )
        return [""] * len(next(iter(observation.values())))


NO_TEXTS = TaskTexts()
"""Nothing is told apart."""


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


@functools.lru_cache(maxsize=256)
def _warn(told: str, known: str) -> None:
    """Warn once per pair."""
    logger.warning("the task is %r, but the refiner knows %r only and acts as for that", told, known)
