"""What the policy and its refiner propose at each control step, for all rows at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from data.records import Chunk
from robot_rl.correct.corrector import Correction, CorrectorInput
from robot_rl.correct.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.policy import Policy
    from robot_rl.planning import Planned
    from robot_rl.refiner import Refiner
    from robot_rl.rows import Row
    from sim.task import Task


@dataclass(frozen=True)
class Proposed:
    """The proposal for one control step; NaN where nobody proposes anything.

    Attributes:
        base: The frozen policy's actions (B, A), robot units.
        action: The same after correction (B, A), robot units.
        chunk_id: Chunk that they come from; -1 without one.
        chunk_index: Their position in it; -1 without one.
        info: Diagnostics of hooks and corrector, each (B, ...).
    """

    base: NDArray[np.float64]
    action: NDArray[np.float64]
    chunk_id: int = -1
    chunk_index: int = -1
    info: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Proposer(Protocol):
    """Called by the loop in turn: `observe`, `propose`, `executed`, `observe`, ..."""

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """Take the present observation, each value (B, ...)."""
        ...

    def propose(self) -> Proposed:
        """Return the proposal for this control step."""
        ...

    def executed(self, action: NDArray[np.float64]) -> None:
        """Take what was executed, (B, A), robot units; NaN in rows that have ended."""
        ...


class NoProposer:
    """Proposes nothing, where whoever holds control acts without a policy.

    Args:
        rows: B.
        size: A.
    """

    def __init__(self, rows: int, size: int) -> None:
        nothing = np.full((rows, size), np.nan)
        self._nothing = Proposed(nothing, nothing)

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """See `Proposer`."""

    def propose(self) -> Proposed:
        """Return NaN; see `Proposer`."""
        return self._nothing

    def executed(self, action: NDArray[np.float64]) -> None:
        """See `Proposer`."""


@dataclass
class _Plan:
    """A batch of chunks in execution."""

    chunk: NDArray[np.float32]
    noise: NDArray[np.float32] | None
    id: int
    first_step: int
    info: Mapping[str, NDArray[Any]]


class PolicyProposer:
    """Asks the policy for chunks when they are due, and has each step's action corrected.

    Args:
        policy: The frozen base.
        refiner: What is added to it.
        rows: The loop's rows; their chunks are recorded, their generators drawn from.
        tasks: Task per row; its text is read anew for each chunk.
        deterministic: Whether nothing explores.
        gain: Share of the correction applied.
        delay: Control steps that pass while a chunk is computed.
    """

    def __init__(
        self,
        policy: Policy,
        refiner: Refiner,
        rows: Sequence[Row],
        tasks: Sequence[Task],
        *,
        deterministic: bool,
        gain: float,
        delay: int,
    ) -> None:
        self._policy, self._refiner, self._rows, self._tasks = policy, refiner, rows, tasks
        self._deterministic, self._gain, self._delay = deterministic, gain, delay
        self._spec, self._corrector = policy.spec, refiner.correct
        keys = self._corrector.history_keys if self._corrector else ()
        length = self._corrector.history_length if self._corrector else 0
        self._history = History(keys, length, self._spec.action_spec.size)
        self._past: deque[Mapping[str, NDArray[Any]]] = deque(maxlen=self._spec.observation_steps)
        self._step, self._chunks = 0, 0
        self._plan: _Plan | None = None
        self._next: _Plan | None = None
        self._base: NDArray[np.float64] | None = None
        if self._corrector:
            self._corrector.begin_episode(np.arange(len(rows)))
        for hook in refiner.hooks:
            hook.begin_episode([row.name for row in rows])

    def observe(self, observation: Mapping[str, NDArray[Any]]) -> None:
        """Take the present observation, each value (B, ...); after a step, plan anew if a chunk is due."""
        self._history.observe(observation)
        self._past.append(observation)
        if self._plan is not None:
            self._plan = self._replan(self._plan)

    def propose(self) -> Proposed:
        """Return the proposal for this control step."""
        plan = self._plan = self._ask(delay=0) if self._plan is None else self._replan(self._plan)
        index = self._spec.first_action + self._step - plan.first_step
        correction = self._correct(plan.chunk, index)
        self._base = plan.chunk[:, index].astype(np.float64)
        info = {**plan.info, **correction.info}
        return Proposed(self._base, correction.action, plan.id, index, info)

    def executed(self, action: NDArray[np.float64]) -> None:
        """Take what was executed, (B, A), robot units; NaN in rows that have ended."""
        base = self._base
        assert base is not None, "a step is proposed before it is executed"
        # A row that has ended counts as uncorrected.
        done = np.where(np.isfinite(action), action, np.where(np.isfinite(base), base, 0.0))
        self._history.act(done - base)
        self._step += 1

    def _replan(self, plan: _Plan) -> _Plan:
        """Ask for a chunk when one is due; the plan to follow, a new one when this has been executed."""
        consumed = self._step - plan.first_step
        due = self._spec.executed_steps + (self._delay if plan.id else 0)
        if self._next is None and consumed >= due - self._delay:
            self._next = self._ask(self._delay, consumed)
        if self._next is None or consumed < due:
            return plan
        plan, self._next = self._next, None
        return plan

    def _ask(self, delay: int, consumed: int = 0) -> _Plan:
        from robot_rl.planning import plan_chunks  # keeps torch out of the loop's import

        result = plan_chunks(
            self._policy,
            self._refiner,
            past=list(self._past),
            tasks=[task.task_text for task in self._tasks],
            generators=[row.noise_rng for row in self._rows],
            previous=None if self._plan is None else self._plan.chunk,
            consumed=consumed,
            delay=delay,
            episode_ids=[row.name for row in self._rows],
            deterministic=self._deterministic,
        )
        plan = _Plan(result.chunk, result.noise, self._chunks, self._step, result.info)
        self._chunks += 1
        self._record(plan, result, delay)
        return plan

    def _record(self, plan: _Plan, result: Planned, delay: int) -> None:
        for number, row in enumerate(self._rows):
            # A row that was cut off in this very step still needs the plan of its last observation.
            if row.ended is not None and row.ended != self._step:
                continue
            chunk = Chunk(
                id=plan.id,
                first_step=plan.first_step,
                actions=plan.chunk[number],
                noise=None if plan.noise is None else plan.noise[number],
                delay=delay,
                candidates=None if result.candidates is None else result.candidates[number],
                index=None if result.index is None else int(result.index[number]),
            )
            row.builder.add_chunk(chunk)

    def _correct(self, chunk: NDArray[np.float32], index: int) -> Correction:
        request = CorrectorInput(
            observation=self._past[-1],
            base_chunk=chunk,
            index=np.full(len(self._rows), index),
            history=self._history,
            deterministic=self._deterministic,
            generators=tuple(row.explore_rng for row in self._rows),
        )
        if self._corrector is None:
            return Correction(request.base_action)
        return self._corrector.correct(request, self._gain)
