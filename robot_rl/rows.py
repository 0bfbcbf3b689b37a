"""One row of the control loop: an environment in the middle of its episode, stepped and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from data.events import Event, EventKind
from data.records import Chunk, EpisodeBuilder, Outcome, Source, Step
from robot_rl.arbiter import Arbiter, Proposal
from robot_rl.env_step import take_step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hardware.clock import Clock
    from robot_rl.env_step import Taken
    from robot_rl.proposing import Proposed

INFO_KEYS = ("contact_force_n",)
"""Diagnostics of the environment that are recorded per step when it gives them."""


def row_generators(seed: int, stream: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the base's noise and of exploration in the episode of a seed.

    Args:
        seed: Of the episode.
        stream: Keeps different uses of one seed apart.
    """
    noise, explore = np.random.SeedSequence([seed, stream]).spawn(2)
    return np.random.default_rng(noise), np.random.default_rng(explore)


@dataclass
class Row:
    """One row's episode while it runs.

    Attributes:
        name: Id of the episode.
        seed: Of the reset.
        env: What is stepped.
        arbiter: Decides what is executed.
        builder: Keeps what happened; it was given the observation of the reset.
        observation: The latest, by key.
        noise_rng: Noise of the base's chunks.
        explore_rng: Exploration of the corrector.
        ended: Steps of the episode once it is over.
        outcome: How it ended.
        holder: Who held control in the last step.
    """

    name: str
    seed: int
    env: gymnasium.Env[Any, Any]
    arbiter: Arbiter
    builder: EpisodeBuilder
    observation: Mapping[str, Any]
    noise_rng: np.random.Generator
    explore_rng: np.random.Generator
    ended: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    holder: Source | None = None
    _source: Source | None = field(default=None, init=False)
    _segment: int = field(default=-1, init=False)
    _held: str = field(default="", init=False)

    def returned(self, stamp: float) -> bool:
        """Ask who holds control in the step that begins at `stamp` (s); whether the policy gets it back."""
        before, self.holder = self.holder, self.arbiter.control(stamp)
        return self.holder is Source.POLICY and before not in {None, Source.POLICY}

    def act(self, number: int, proposed: Proposed, *, gain: float, clock: Clock) -> NDArray[np.float64]:
        """Execute and record one step.

        Args:
            number: Of this row in the proposal.
            proposed: What the policy proposes.
            gain: Share of the correction in it, for the record.
            clock: Gives the recorded times.

        Returns:
            The executed action (A,), robot units.
        """
        stamp, wall, count = clock.now(), clock.wall(), len(self.builder)
        proposal = Proposal(proposed.action[number], count, proposed.hold[number])
        executed = self.arbiter.resolve(proposal, stamp)
        if executed.source is not self._source:
            self._source, self._segment = executed.source, self._segment + 1
        self._note(executed.because if executed.source is Source.PAUSED else "", stamp, wall)
        taken = take_step(self.env, executed.action, self.seed, count)
        step = Step(
            action=executed.action,
            action_base=proposed.base[number],
            action_policy=proposed.action[number],
            action_intended=executed.intended,
            chunk_id=int(proposed.chunk_id[number]),
            chunk_index=int(proposed.chunk_index[number]),
            source=executed.source,
            segment_id=self._segment,
            segment_kind=executed.segment_kind,
            reward=taken.reward,
            terminated=taken.terminated,
            truncated=taken.truncated,
            wall_time=wall,
            monotonic_time=stamp,
            gain=gain,
        )
        extra = {key: np.asarray(value)[number] for key, value in proposed.info.items()}
        self._record(step, taken, extra)
        return executed.action

    def _note(self, held: str, stamp: float, wall: float) -> None:
        """Write down why the robot holds still, once for each reason on end."""
        if held and held != self._held:
            self.builder.event(Event(time=stamp, wall_time=wall, kind=EventKind.NOTE, because=held))
        self._held = held

    def keep(self, chunk: Chunk, step: int) -> None:
        """Record a chunk that is known at control step `step`.

        A row that was cut off in this very step still needs the plan of its last observation; one that ended
        before takes no more.
        """
        if self.ended is None or self.ended == step:
            self.builder.add_chunk(chunk)

    def _record(self, step: Step, taken: Taken, extra: Mapping[str, Any]) -> None:
        """Keep a step, and the outcome if it was the last."""
        measured = {key: np.asarray(float(taken.info[key])) for key in INFO_KEYS if key in taken.info}
        self.builder.append(step, taken.observation, {**extra, **measured})
        self.observation = taken.observation
        if taken.terminated or taken.truncated:
            self.ended = len(self.builder)
            self.outcome = Outcome.SUCCESS if taken.info["success"] else Outcome.FAILURE
            self.builder.metadata |= {
                key: value for key, value in taken.info.items() if isinstance(value, bool | int | float)
            }
