"""Policy and refiner as a plain function of observations, for a control loop that is not ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.arbiter import LimitArbiter, Proposal
from robot_rl.planner import SimulatedPlanner
from robot_rl.proposing import PolicyProposer
from robot_rl.refiner import Refiner
from robot_rl.rows import row_generators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from data.records import Chunk
    from policies.policy import Policy
    from robot_rl.plans import Previous
    from robot_rl.proposing import Proposed


@dataclass
class _Row:
    """A row whose episode nobody records."""

    name: str
    task_text: str
    noise_rng: np.random.Generator
    explore_rng: np.random.Generator

    def keep(self, chunk: Chunk, step: int) -> None:
        del chunk, step


class Stepper:
    """Turns observations into actions, one control step at a time, in B rows that advance together.

    On the same seeds, observations and number of rows its actions are those of `robot_rl.ControlLoop`, to the
    bit: chunks when they are due, noise, hooks and selector in them, the corrector at every step, the
    action's limits last.

        stepper = Stepper(policy, refiner)
        stepper.begin(["push the disc"])
        while running:
            actions = stepper.act({"observation.state": state[None]})

    Args:
        policy: The frozen base.
        refiner: What is added to it; None for the bare base.
        rows: B.
        seed: Of row 0's first episode. Row i's n-th episode has the seed ``seed + n * rows + i``.
        stream: Keeps different uses of one seed apart, as `LoopConfig.stream` does.
        deterministic: Whether correctors act without exploration.
        gain: Share of what the refiner does that is applied, 0 .. 1.

    Attributes:
        rows: B.

    Raises:
        ValueError: The refiner was made for another base, or a number is out of range.
    """

    def __init__(
        self,
        policy: Policy,
        refiner: Refiner | None = None,
        rows: int = 1,
        *,
        seed: int = 0,
        stream: int = 0,
        deterministic: bool = True,
        gain: float = 1.0,
    ) -> None:
        if rows < 1 or seed < 0 or not 0.0 <= gain <= 1.0:
            raise ValueError(
                f"rows is {rows}, seed {seed} and gain {gain}; allowed are 1 or more, 0 or more, and 0 .. 1."
            )
        self.refiner = refiner or Refiner()
        self.refiner.check_base(policy.hash())
        student = self.refiner.student
        self.policy = policy if student is None else student.in_place_of(policy)
        self.rows, self._seed, self._stream = rows, seed, stream
        self._deterministic, self._gain = deterministic, gain
        self._limits = LimitArbiter(self.policy.spec.action_spec)
        self._episodes = 0
        self._rows: list[_Row] = []
        self._proposer: PolicyProposer | None = None
        self._waiting: NDArray[np.float64] | None = None
        self._step = 0

    def begin(self, tasks: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> None:
        """Begin an episode in every row.

        Args:
            tasks: Task text per row; empty texts when None.
            seeds: Seed per row, in place of those that follow from the stepper's own.

        Raises:
            ValueError: There are not as many as rows.
        """
        texts = [""] * self.rows if tasks is None else list(tasks)
        first = self._seed + self._episodes * self.rows
        numbers = list(range(first, first + self.rows)) if seeds is None else [int(seed) for seed in seeds]
        for name, given in (("tasks", texts), ("seeds", numbers)):
            if len(given) != self.rows:
                raise ValueError(f"{len(given)} {name} for {self.rows} rows; give one each.")
        self._episodes += 1
        self._rows = [
            _Row(f"{number}-{self._stream}", text, *row_generators(number, self._stream))
            for number, text in zip(numbers, texts, strict=True)
        ]
        self._proposer = PolicyProposer(
            self.policy,
            self.refiner,
            self._rows,
            self._rows,
            planner=SimulatedPlanner(),
            deterministic=self._deterministic,
            gain=self._gain,
        )
        self._waiting, self._step = None, 0

    def act(
        self,
        observation: Mapping[str, NDArray[Any]],
        *,
        executed: ArrayLike | None = None,
        returned: Sequence[bool] | None = None,
    ) -> NDArray[np.float64]:
        """Return the actions of one control step.

        Args:
            observation: Each value (B, ...), SI units, pictures uint8 (B, height, width, channels).
            executed: What was executed after the last call, (B, A), where that was something else than was
                returned; NaN in rows that have ended.
            returned: Rows (B,) in which the policy gets control back; what was planned before is forgotten
                there.

        Returns:
            (B, A), robot units, within the limits of the policy's actions.

        Raises:
            RuntimeError: No episode was begun.
            ValueError: An observation is missing or has another number of rows, or an action is not finite.
        """
        proposer = self._begun()
        self._check_rows(observation)
        if self._waiting is not None:
            proposer.executed(self._waiting if executed is None else self._executed(executed))
        proposer.observe(observation)
        again = np.zeros(self.rows, np.bool_) if returned is None else np.asarray(returned, np.bool_)
        self._waiting = self._limited(proposer.propose(again))
        self._step += 1
        return self._waiting.copy()

    def chunk(
        self,
        past: Sequence[Mapping[str, NDArray[Any]]],
        *,
        previous: Previous | None = None,
        delay: int = 0,
    ) -> NDArray[np.float32]:
        """Return whole chunks, for a caller that keeps track of their execution itself.

        Noise, hooks and selector take part; each call draws anew. `act` is not affected but for the noise.

        Args:
            past: Latest observations, oldest first, as `act` takes one; the first repeats while there are
                fewer than the policy reads.
            previous: Base chunks in execution, for real-time chunking.
            delay: Control steps until the chunks can act.

        Returns:
            (B, H, A), robot units; the present action is at the policy's `first_action`.

        Raises:
            RuntimeError: No episode was begun.
            ValueError: The refiner has a corrector, which acts at each control step.
        """
        self._begun()
        if self.refiner.correct is not None:
            raise ValueError(
                f"The refiner corrects each control step ({type(self.refiner.correct).__name__}), so there "
                "is no chunk to hand out; ask step by step, or leave that part out."
            )
        for frame in past:
            self._check_rows(frame)
        from robot_rl.planning import plan_chunks  # keeps torch out of this module's import

        return plan_chunks(
            self.policy,
            self.refiner,
            past=past,
            tasks=[row.task_text for row in self._rows],
            generators=[row.noise_rng for row in self._rows],
            previous=previous,
            delay=delay,
            episode_ids=[row.name for row in self._rows],
            deterministic=self._deterministic,
            gain=self._gain,
        ).chunk

    def _begun(self) -> PolicyProposer:
        if self._proposer is None:
            raise RuntimeError("No episode was begun; call begin() first, and again after every reset.")
        return self._proposer

    def _check_rows(self, observation: Mapping[str, NDArray[Any]]) -> None:
        if wrong := {k: len(v) for k, v in observation.items() if len(v) != self.rows}:
            raise ValueError(f"The observation has {wrong} rows; there are {self.rows}.")

    def _executed(self, action: ArrayLike) -> NDArray[np.float64]:
        array = np.array(action, np.float64)
        wanted = (self.rows, self.policy.spec.action_size)
        if array.shape != wanted:
            raise ValueError(f"The executed actions have shape {array.shape}; {wanted} is needed.")
        return array

    def _limited(self, proposed: Proposed) -> NDArray[np.float64]:
        """What the loop's arbiter would execute."""
        proposals = [
            Proposal(action, self._step, hold)
            for action, hold in zip(proposed.action, proposed.hold, strict=True)
        ]
        return np.stack([self._limits.resolve(each, 0.0).action for each in proposals])
