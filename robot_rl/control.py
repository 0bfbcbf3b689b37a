"""The one control loop: observe, plan a chunk, correct each step, arbitrate, act, record.

Demonstrations, training rollouts, evaluation and deployment run it alike. It drives B rows, each a Gymnasium
environment (a simulation, or a robot behind the same contract), through one episode each. All rows step
together, so every network call has the same batch shape whatever the other rows do; rows that ended early are
carried along unread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import differences
from data.records import Episode, EpisodeBuilder
from hardware.clock import SimulatedClock, WallClock
from robot_rl.arbiter import Arbiter, LimitArbiter
from robot_rl.pace import Pace
from robot_rl.planner import SimulatedPlanner
from robot_rl.proposing import NoProposer, PolicyProposer
from robot_rl.refiner import Refiner
from robot_rl.rows import Row, row_generators

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import gymnasium
    from numpy.typing import NDArray

    from hardware.clock import Clock
    from policies.policy import Policy
    from robot_rl.planner import Planner
    from robot_rl.proposing import Proposer
    from sim.task import Task


@dataclass(frozen=True)
class LoopConfig:
    """How the loop runs.

    Attributes:
        deterministic: Whether correctors act without exploration.
        gain: Share of the correction applied, 0 .. 1; recorded per step.
        delay: Control steps that pass while a chunk is computed, in simulated time; its first `delay` actions
            are skipped.
        stream: Keeps the base's noise and the exploration of different uses of one seed apart.
        operator: Who demonstrates or may intervene; recorded with the episode.
    """

    deterministic: bool = True
    gain: float = 1.0
    delay: int = 0
    stream: int = 0
    operator: str = ""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.gain <= 1.0:
            raise ValueError(f"gain is {self.gain}; it must lie in 0 .. 1.")
        if self.delay < 0:
            raise ValueError(f"delay is {self.delay}; it counts control steps, from 0.")


class TaskMisfitError(ValueError):
    """The policy was made for another task."""


class ControlLoop:
    """Runs waves of B episodes.

    Args:
        envs: B environments of one task; see `sim.task`.
        policy: The frozen base; None where whoever the arbiters listen to acts without one.
        refiner: What is added to the policy; None runs the bare base through the same path.
        config: How to run.
        clock: Paces the steps at the action's rate and gives the recorded times. None: as fast as it goes,
            with the computer's time.
        arbiters: One per row; the action's limits alone when None.
        planner: Computes the chunks. None: in simulated time, with the delay of `config`.

    Raises:
        ValueError: The refiner was made for another base, the policy for another task, the delay does not
            fit the chunk, or nobody acts.
        TaskError: The environments lack a part of the task contract.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        policy: Policy | None,
        refiner: Refiner | None = None,
        config: LoopConfig | None = None,
        *,
        clock: Clock | None = None,
        arbiters: Sequence[Arbiter] | None = None,
        planner: Planner | None = None,
    ) -> None:
        from sim.task import task_of  # here, because importing sim chooses the library that MuJoCo draws with

        self.config = config or LoopConfig()
        self.refiner = refiner or Refiner()
        self.policy, self.clock = policy, clock or WallClock()
        self._planner = planner or SimulatedPlanner(self.config.delay)
        self._paced = clock is not None
        self._envs = list(envs)
        self.tasks = [task_of(env) for env in self._envs]
        self._hash = "" if policy is None else self._check(policy)
        if policy is not None and self.refiner.student is not None:
            self.policy = self.refiner.student.in_place_of(policy)
            _refuse_misfit(self.policy, self.tasks[0])
        if policy is None and (refiner is not None or arbiters is None):
            raise ValueError("Without a policy nothing can be refined, and arbiters must say who acts.")
        self._limits = self.tasks[0].action_spec
        self._arbiters = list(arbiters or [LimitArbiter(self._limits) for _ in self._envs])
        if len(self._arbiters) != len(self._envs):
            raise ValueError(f"{len(self._arbiters)} arbiters for {len(self._envs)} rows; give one each.")

    def _check(self, policy: Policy) -> str:
        """Refuse a policy that does not fit; its hash."""
        spec = policy.spec
        most = spec.horizon - spec.first_action - spec.executed_steps
        if self.config.delay > most:
            raise ValueError(
                f"A delay of {self.config.delay} steps does not fit a chunk of {spec.horizon} actions "
                f"of which {spec.executed_steps} are executed; choose at most {most}."
            )
        found = policy.hash()
        self.refiner.check_base(found)
        _refuse_misfit(policy, self.tasks[0])
        return found

    def run(
        self,
        seeds: Sequence[int],
        *,
        options: Mapping[str, Any] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> list[Episode]:
        """Run one episode per row to its end.

        Args:
            seeds: Seed of each row's episode: environment, base noise and exploration follow from it alone.
            options: Handed to every reset.
            on_step: Called after each tick with the number of rows that stepped.

        Returns:
            One episode per seed, in order.
        """
        if len(seeds) != len(self._envs):
            raise ValueError(f"{len(seeds)} seeds for {len(self._envs)} rows; one each is needed.")
        rows = [self._start(number, int(seed), options) for number, seed in enumerate(seeds)]
        proposer = self._proposer(rows)
        proposer.observe(_stacked(rows))
        pace: Pace | None = None
        while any(row.ended is None for row in rows):
            active = self._tick(rows, proposer)
            if on_step is not None:
                on_step(active)
            if self._paced:
                # From the first step on: before it nothing moves, however long the first chunk takes.
                pace = pace or Pace(self.clock, self._limits.rate_hz)
                pace.wait()
        for row in rows:
            row.builder.metadata |= {} if pace is None else pace.facts()
        return [row.builder.finish(row.outcome) for row in rows]

    def _start(self, number: int, seed: int, options: Mapping[str, Any] | None) -> Row:
        """Reset one row and begin to record it."""
        env, task, arbiter = self._envs[number], self.tasks[number], self._arbiters[number]
        observation, _ = env.reset(seed=seed, options=dict(options or {}))
        arbiter.begin_episode(seed)
        stream = None if self.policy is None else self.config.stream
        builder = EpisodeBuilder(
            id=episode_name(env, seed, stream),
            task=task.task_text,
            seed=seed,
            robot=getattr(task, "robot", ""),
            operator=self.config.operator,
            base_version=self._hash,
            refiner_version=self._refiner_version(),
        )
        builder.start(observation)
        generators = row_generators(seed, self.config.stream)
        return Row(builder.id, seed, env, arbiter, builder, observation, *generators)

    def _refiner_version(self) -> str:
        """Of the refiner here, after that of one within the policy, as behind a server."""
        within = "" if self.policy is None else self.policy.refiner_version
        return "+".join(version for version in (within, self.refiner.version) if version)

    def _proposer(self, rows: Sequence[Row]) -> Proposer:
        config = self.config
        if self.policy is None:
            return NoProposer(len(rows), self._limits.size)
        return PolicyProposer(
            self.policy,
            self.refiner,
            rows,
            self.tasks,
            planner=self._planner,
            deterministic=config.deterministic,
            gain=config.gain,
        )

    def _tick(self, rows: Sequence[Row], proposer: Proposer) -> int:
        """Run one control step in every row that has not ended; the number of those rows."""
        active = [number for number, row in enumerate(rows) if row.ended is None]
        stamp, returned = self.clock.now(), np.zeros(len(rows), np.bool_)
        for number in active:
            returned[number] = rows[number].returned(stamp)
        proposed = proposer.propose(returned)
        executed = np.full_like(proposed.base, np.nan)
        for number in active:
            executed[number] = rows[number].act(number, proposed, gain=self.config.gain, clock=self.clock)
        proposer.executed(executed)
        proposer.observe(_stacked(rows))
        return len(active)


def _stacked(rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
    """The rows' latest observations, each (B, ...)."""
    return {key: np.stack([np.asarray(row.observation[key]) for row in rows]) for key in rows[0].observation}


def _refuse_misfit(policy: Policy, task: Task) -> None:
    from policies.checkpoint import action_differences  # keeps torch out of the loop's import

    spec = policy.spec
    lines = differences(spec.features, task.features, expected_by="the policy", found_in="the task")
    lines += action_differences(spec.action_spec, task.action_spec)
    if lines:
        raise TaskMisfitError(f"The policy {spec.name!r} was made for another task: " + " ".join(lines))


def episode_name(env: gymnasium.Env[Any, Any], seed: int, stream: int | None) -> str:
    """Name of the episode that a loop runs; unique among those of one policy and refiner.

    Args:
        env: The row's environment.
        seed: Of the episode.
        stream: Of the loop; None for a demonstration, whose names sort by seed.
    """
    task = type(env.unwrapped).__name__.lower()
    return f"{task}-demo-{seed:08d}" if stream is None else f"{task}-{seed}-{stream}"


def run_wave(
    envs: Sequence[gymnasium.Env[Any, Any]],
    seeds: Sequence[int],
    policy: Policy,
    refiner: Refiner | None = None,
    *,
    deterministic: bool = True,
    gain: float = 1.0,
    delay: int = 0,
    options: Mapping[str, Any] | None = None,
) -> list[Episode]:
    """Run one episode per simulated environment, in simulated time; see `ControlLoop`."""
    config = LoopConfig(deterministic=deterministic, gain=gain, delay=delay)
    return ControlLoop(envs, policy, refiner, config, clock=SimulatedClock()).run(seeds, options=options)
