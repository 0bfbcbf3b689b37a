"""What the policy and its refiner propose at each control step, for all rows at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.correct.corrector import Correction, CorrectorInput
from robot_rl.correct.history import History
from robot_rl.plans import Plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.policy import Policy
    from robot_rl.planner import Planner
    from robot_rl.planning import Planned
    from robot_rl.plans import PlannedRow, Previous
    from robot_rl.refiner import Refiner


NO_CHUNK = "no chunk is ready"
"""Why a row holds still."""


@dataclass(frozen=True)
class Proposed:
    """The proposal for one control step; NaN where nobody proposes anything.

    Attributes:
        base: The frozen policy's actions (B, A), robot units; what holds the robot still where there is none.
        action: The same after correction (B, A), robot units.
        chunk_id: Chunk that they come from, (B,); -1 without one.
        chunk_index: Their position in it, (B,); -1 without one.
        hold: Why a row should hold still instead, one text per row; empty where it should not.
        info: Diagnostics of hooks and corrector, each (B, ...).
    """

    base: NDArray[np.float64]
    action: NDArray[np.float64]
    chunk_id: NDArray[np.int64]
    chunk_index: NDArray[np.int64]
    hold: tuple[str, ...]
    info: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Proposer(Protocol):
    """Called by the loop in turn: `observe`, `propose`, `executed`, `observe`, ..."""

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """Take the present observation, each value (B, ...)."""
        ...

    def propose(self, returned: NDArray[np.bool_]) -> Proposed:
        """Return the proposal for this control step.

        Args:
            returned: Rows (B,) in which the policy gets control back in this step. What was planned before is
                forgotten there: the robot is elsewhere now.
        """
        ...

    def executed(self, action: NDArray[np.float64]) -> None:
        """Take what was executed, (B, A), robot units; NaN in rows that have ended."""
        ...


class HasText(Protocol):
    """What is read of a task."""

    @property
    def task_text(self) -> str:
        """The running episode's task in words."""
        ...


class NoProposer:
    """Proposes nothing, where whoever holds control acts without a policy.

    Args:
        rows: B.
        size: A.
    """

    def __init__(self, rows: int, size: int) -> None:
        nothing, none = np.full((rows, size), np.nan), np.full(rows, -1)
        self._nothing = Proposed(nothing, nothing, none, none, ("",) * rows)

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """See `Proposer`."""

    def propose(self, returned: NDArray[np.bool_]) -> Proposed:
        """Return NaN; see `Proposer`."""
        del returned
        return self._nothing

    def executed(self, action: NDArray[np.float64]) -> None:
        """See `Proposer`."""


class PolicyProposer:
    """Has chunks planned when they are due, and each step's action corrected.

    Args:
        policy: The frozen base.
        refiner: What is added to it.
        rows: They keep their chunks; their generators are drawn from.
        tasks: Task per row; its text is read anew for each chunk.
        planner: Computes the chunks.
        deterministic: Whether nothing explores.
        gain: Share of what the refiner does that is applied.
    """

    def __init__(
        self,
        policy: Policy,
        refiner: Refiner,
        rows: Sequence[PlannedRow],
        tasks: Sequence[HasText],
        *,
        planner: Planner,
        deterministic: bool,
        gain: float,
    ) -> None:
        self._policy, self._refiner, self._rows, self._tasks = policy, refiner, rows, tasks
        self._deterministic, self._gain = deterministic, gain
        self._spec, self._corrector = policy.spec, refiner.correct
        self._plans = Plans(policy.spec, planner, self._compute, rows)
        keys = self._corrector.history_keys if self._corrector else ()
        length = self._corrector.history_length if self._corrector else 0
        self._history = History(keys, length, self._spec.action_spec.size)
        self._past: deque[Mapping[str, NDArray[Any]]] = deque(maxlen=self._spec.observation_steps)
        self._last: NDArray[np.float64] = np.zeros((len(rows), self._spec.action_spec.size))
        self._base: NDArray[np.float64] | None = None
        self._step = 0
        if self._corrector:
            self._corrector.begin_episode(np.arange(len(rows)))
        names = [row.name for row in rows]
        policy.begin_episode(names)
        for hook in refiner.hooks:
            hook.begin_episode(names)

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """Take the present observation, each value (B, ...); after a step, plan anew if a chunk is due."""
        self._history.observe(observation)
        self._past.append(observation)
        if self._step:
            self._plans.advance(self._step)

    def propose(self, returned: NDArray[np.bool_]) -> Proposed:
        """Return the proposal for this control step; see `Proposer`."""
        self._plans.forget(returned)
        self._plans.advance(self._step)
        index, ready = self._plans.index(self._step)
        correction = self._correct(self._plans.chunk, index)
        base = self._plans.chunk[np.arange(len(index)), index].astype(np.float64)
        action = correction.action
        if not ready.all():
            still = self._spec.action_spec.hold(self._last)
            base = np.where(ready[:, None], base, still)
            action = np.where(ready[:, None], action, still)
        self._base = base
        because = zip(ready, self._plans.because, strict=True)
        hold = tuple("" if fine else why or NO_CHUNK for fine, why in because)
        return Proposed(
            base,
            action,
            np.where(ready, self._plans.id, -1),
            np.where(ready, index, -1),
            hold,
            {**self._plans.info, **correction.info},
        )

    def executed(self, action: NDArray[np.float64]) -> None:
        """Take what was executed, (B, A), robot units; NaN in rows that have ended."""
        base = self._base
        assert base is not None, "a step is proposed before it is executed"
        # A row that has ended counts as uncorrected.
        self._last = np.where(np.isfinite(action), action, np.where(np.isfinite(base), base, 0.0))
        self._history.act(self._last - base)
        self._step += 1

    def _compute(self, rows: Sequence[int], previous: Previous | None) -> Callable[[int], Planned]:
        """What computes the chunks of some rows, from what is known now."""
        from robot_rl.planning import plan_chunks  # keeps torch out of the loop's import

        past = [{key: value[rows] for key, value in frame.items()} for frame in self._past]
        tasks = [self._tasks[row].task_text for row in rows]
        chosen = [self._rows[row] for row in rows]

        def compute(delay: int) -> Planned:
            return plan_chunks(
                self._policy,
                self._refiner,
                past=past,
                tasks=tasks,
                generators=[row.noise_rng for row in chosen],
                previous=previous,
                delay=delay,
                episode_ids=[row.name for row in chosen],
                deterministic=self._deterministic,
                gain=self._gain,
            )

        return compute

    def _correct(self, chunk: NDArray[np.float32], index: NDArray[np.int64]) -> Correction:
        request = CorrectorInput(
            observation=self._past[-1],
            base_chunk=chunk,
            index=index,
            history=self._history,
            deterministic=self._deterministic,
            generators=tuple(row.explore_rng for row in self._rows),
            tasks=tuple(task.task_text for task in self._tasks),
        )
        if self._corrector is None:
            return Correction(request.base_action)
        return self._corrector.correct(request, self._gain)
