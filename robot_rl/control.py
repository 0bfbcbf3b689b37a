"""The one control loop: observe, plan a chunk, correct each step, arbitrate, act, record.

Training rollouts, evaluation and deployment run it alike. It drives B rows, each a Gymnasium environment
(a simulation, or a robot behind the same contract), through one episode each. All rows step together, so
every network call has the same batch shape whatever the other rows do; rows that ended early are carried
along unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from data.features import differences
from data.records import Chunk, Episode, EpisodeBuilder, Outcome, Source, Step
from hardware.clock import WallClock
from robot_rl.arbiter import Arbiter, Executed, LimitArbiter, Proposal
from robot_rl.correct.corrector import Correction, CorrectorInput
from robot_rl.correct.history import History
from robot_rl.env_step import take_step
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hardware.clock import Clock
    from policies.policy import Policy
    from sim.task import Task

INFO_KEYS = ("contact_force_n",)
"""Diagnostics of the environment that are recorded per step when it gives them."""


@dataclass(frozen=True)
class LoopConfig:
    """How the loop runs.

    Attributes:
        deterministic: Whether correctors act without exploration.
        gain: Share of the correction applied, 0 .. 1; recorded per step.
        delay: Control steps that pass while a chunk is computed; its first `delay` actions are skipped.
        stream: Keeps the base's noise and the exploration of different uses of one seed apart.
    """

    deterministic: bool = True
    gain: float = 1.0
    delay: int = 0
    stream: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.gain <= 1.0:
            raise ValueError(f"gain is {self.gain}; it must lie in 0 .. 1.")
        if self.delay < 0:
            raise ValueError(f"delay is {self.delay}; it counts control steps, from 0.")


@dataclass
class _Plan:
    """A batch of chunks in execution."""

    chunk: NDArray[np.float32]
    noise: NDArray[np.float32] | None
    id: int
    first_step: int


@dataclass
class _Row:
    """One row's episode while it runs."""

    name: str
    seed: int
    env: gymnasium.Env[Any, Any]
    arbiter: Arbiter
    builder: EpisodeBuilder
    observation: Mapping[str, Any]
    noise_rng: np.random.Generator
    explore_rng: np.random.Generator
    source: Source | None = None
    segment: int = -1
    ended: int | None = None
    outcome: Outcome = Outcome.UNKNOWN


class ControlLoop:
    """Runs waves of B episodes.

    Args:
        envs: B environments of one task; see `sim.task`.
        policy: The frozen base.
        refiner: What is added to it; None runs the bare base through the same path.
        config: How to run.
        clock: Gives the recorded times.
        arbiters: One per row; the action's limits alone when None.

    Raises:
        ValueError: The refiner was made for another base, the policy for another task, or the delay does not
            fit the chunk.
        TaskError: The environments lack a part of the task contract.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        policy: Policy,
        refiner: Refiner | None = None,
        config: LoopConfig | None = None,
        *,
        clock: Clock | None = None,
        arbiters: Sequence[Arbiter] | None = None,
    ) -> None:
        from sim.task import task_of  # here, because importing sim chooses the library that MuJoCo draws with

        self.config = config or LoopConfig()
        self.refiner = refiner or Refiner()
        self.policy, self.clock = policy, clock or WallClock()
        self._envs = list(envs)
        spec = policy.spec
        if spec.first_action + self.config.delay + spec.executed_steps > spec.horizon:
            raise ValueError(
                f"A delay of {self.config.delay} steps does not fit a chunk of {spec.horizon} actions "
                f"of which {spec.executed_steps} are executed; choose at most "
                f"{spec.horizon - spec.first_action - spec.executed_steps}."
            )
        self._hash = policy.hash()
        self.refiner.check_base(self._hash)
        self.tasks = [task_of(env) for env in self._envs]
        _refuse_misfit(policy, self.tasks[0])
        limits = self.tasks[0].action_spec
        self._arbiters = list(arbiters or [LimitArbiter(limits) for _ in self._envs])
        if len(self._arbiters) != len(self._envs):
            raise ValueError(f"{len(self._arbiters)} arbiters for {len(self._envs)} rows; give one each.")

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
        rows = [
            self._start(env, task, arbiter, int(seed), options)
            for env, task, arbiter, seed in zip(self._envs, self.tasks, self._arbiters, seeds, strict=True)
        ]
        run = _Wave(self, rows)
        while not all(row.ended is not None for row in rows):
            active = run.tick()
            if on_step is not None:
                on_step(active)
        return [row.builder.finish(row.outcome) for row in rows]

    def _start(
        self,
        env: gymnasium.Env[Any, Any],
        task: Task,
        arbiter: Arbiter,
        seed: int,
        options: Mapping[str, Any] | None,
    ) -> _Row:
        observation, _ = env.reset(seed=seed, options=dict(options or {}))
        noise, explore = np.random.SeedSequence([seed, self.config.stream]).spawn(2)
        name = episode_name(env, seed, self.config.stream)
        builder = EpisodeBuilder(
            id=name,
            task=task.task_text,
            seed=seed,
            robot="simulation",
            base_version=self._hash,
            refiner_version=self.refiner.version,
        )
        builder.start(observation)
        return _Row(
            name,
            int(seed),
            env,
            arbiter,
            builder,
            observation,
            np.random.default_rng(noise),
            np.random.default_rng(explore),
        )


def _refuse_misfit(policy: Policy, task: Task) -> None:
    from policies.checkpoint import action_differences  # keeps torch out of the loop's import

    spec = policy.spec
    lines = differences(spec.features, task.features, expected_by="the policy", found_in="the task")
    lines += action_differences(spec.action_spec, task.action_spec)
    if lines:
        raise ValueError(f"The policy {spec.name!r} was made for another task: " + " ".join(lines))


def episode_name(env: gymnasium.Env[Any, Any], seed: int, stream: int) -> str:
    """Name of the episode that a loop runs; unique among those of one policy and refiner."""
    return f"{type(env.unwrapped).__name__.lower()}-{seed}-{stream}"


class _Wave:
    """The state of one wave: plans, history and the rows' progress."""

    def __init__(self, loop: ControlLoop, rows: list[_Row]) -> None:
        self._loop, self._rows = loop, rows
        self._spec, self._config, self._corrector = loop.policy.spec, loop.config, loop.refiner.correct
        keys = self._corrector.history_keys if self._corrector else ()
        length = self._corrector.history_length if self._corrector else 0
        self._history = History(keys, length, self._spec.action_spec.size)
        self._past: deque[dict[str, NDArray[Any]]] = deque(maxlen=self._spec.observation_steps)
        self._step, self._chunks = 0, 0
        self._plan: _Plan | None = None
        self._next: _Plan | None = None
        if self._corrector:
            self._corrector.begin_episode(np.arange(len(rows)))
        for hook in loop.refiner.hooks:
            hook.begin_episode([row.name for row in rows])
        self._observe()

    def tick(self) -> int:
        """Run one control step in every row that has not ended; the number of those rows."""
        self._replan()
        plan = self._plan
        assert plan is not None
        index = np.full(len(self._rows), self._spec.first_action + self._step - plan.first_step)
        correction = self._correct(plan.chunk, index)
        base = plan.chunk[:, index[0]].astype(np.float64)
        executed = np.where(np.isfinite(base), base, 0.0)
        active = 0
        for number, row in enumerate(self._rows):
            if row.ended is None:
                executed[number] = self._act(number, row, base[number], correction, int(index[0]))
                active += 1
        self._history.act(executed - base)
        self._step += 1
        self._observe()
        self._replan()
        return active

    def _observe(self) -> None:
        stacked = {
            key: np.stack([np.asarray(row.observation[key]) for row in self._rows])
            for key in self._rows[0].observation
        }
        self._history.observe(stacked)
        self._present = stacked
        self._past.append(stacked)

    def _replan(self) -> None:
        """Ask for a chunk when one is due, and take it up when the present one has been executed."""
        config, spec = self._config, self._spec
        if self._plan is None:
            self._plan = self._ask(delay=0)
            return
        consumed = self._step - self._plan.first_step
        due = spec.executed_steps + (config.delay if self._plan.id else 0)
        if self._next is None and consumed >= due - config.delay:
            self._next = self._ask(config.delay, consumed)
        if self._next is not None and consumed >= due:
            self._plan, self._next = self._next, None

    def _ask(self, delay: int, consumed: int = 0) -> _Plan:
        from robot_rl.planning import plan_chunks  # keeps torch out of the loop's import

        # A row that was cut off in this very tick still needs the plan of its last observation.
        running = [row.ended is None or row.ended == self._step for row in self._rows]
        result = plan_chunks(
            self._loop.policy,
            self._loop.refiner,
            past=list(self._past),
            tasks=[task.task_text for task in self._loop.tasks],
            generators=[row.noise_rng for row in self._rows],
            previous=None if self._plan is None else self._plan.chunk,
            consumed=consumed,
            delay=delay,
            episode_ids=[row.name for row in self._rows],
            deterministic=self._config.deterministic,
        )
        plan = _Plan(result.chunk, result.noise, self._chunks, self._step)
        self._chunks += 1
        for number, row in enumerate(self._rows):
            if running[number]:
                row.builder.add_chunk(
                    Chunk(
                        id=plan.id,
                        first_step=self._step,
                        actions=plan.chunk[number],
                        noise=None if plan.noise is None else plan.noise[number],
                        delay=delay,
                        candidates=None if result.candidates is None else result.candidates[number],
                        index=None if result.index is None else int(result.index[number]),
                    )
                )
        return plan

    def _correct(self, chunk: NDArray[np.float32], index: NDArray[np.int64]) -> Correction:
        request = CorrectorInput(
            observation=self._present,
            base_chunk=chunk,
            index=index,
            history=self._history,
            deterministic=self._config.deterministic,
            generators=tuple(row.explore_rng for row in self._rows),
        )
        if self._corrector is None:
            return Correction(request.base_action)
        return self._corrector.correct(request, self._config.gain)

    def _act(
        self, number: int, row: _Row, base: NDArray[np.float64], correction: Correction, index: int
    ) -> NDArray[np.float64]:
        """Execute and record one row's step; the executed action."""
        clock = self._loop.clock
        stamp, wall = clock.now(), clock.wall()
        executed: Executed = row.arbiter.resolve(Proposal(correction.action[number], self._step), stamp)
        if executed.source is not row.source:
            row.source, row.segment = executed.source, row.segment + 1
        observation, reward, terminated, truncated, info = take_step(
            row.env, executed.action, row.seed, self._step
        )
        plan = self._plan
        assert plan is not None
        step = Step(
            action=executed.action,
            action_base=base,
            action_policy=correction.action[number],
            action_intended=executed.intended,
            chunk_id=plan.id,
            chunk_index=index,
            source=executed.source,
            segment_id=row.segment,
            segment_kind=executed.segment_kind,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            wall_time=wall,
            monotonic_time=stamp,
            gain=self._config.gain,
        )
        extra = {key: np.asarray(value)[number] for key, value in correction.info.items()}
        extra |= {key: np.asarray(float(info[key])) for key in INFO_KEYS if key in info}
        row.builder.append(step, observation, extra)
        row.observation = observation
        if terminated or truncated:
            row.ended = self._step + 1
            row.outcome = Outcome.SUCCESS if info["success"] else Outcome.FAILURE
            row.builder.metadata |= {
                key: value for key, value in info.items() if isinstance(value, bool | int | float)
            }
        return executed.action


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
    """Run one episode per environment; see `ControlLoop`."""
    config = LoopConfig(deterministic=deterministic, gain=gain, delay=delay)
    return ControlLoop(envs, policy, refiner, config).run(seeds, options=options)
