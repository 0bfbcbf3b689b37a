"""Checks that a task keeps the contract that everything else relies on.

Run it over a task of your own:

    from sim.conformance import check_task
    check_task(MyTask)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from data.features import check_sample
from sim.task import TaskError, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import gymnasium
    from numpy.typing import NDArray

    from sim.task import Observation, Task


class ConformanceError(AssertionError):
    """A task breaks the contract; the message says which part."""


def check_task(make: Callable[[], gymnasium.Env[Any, Any]], *, steps: int = 40, seed: int = 7) -> None:
    """Check a task against Gymnasium's rules and ours.

    Args:
        make: builds a fresh environment.
        steps: length of the compared runs, control steps.
        seed: seed of the episode and of the random actions.

    Raises:
        ConformanceError: the task breaks one of our rules: every part of the contract, typed features, one
            outcome flag, sparse reward, same seed same episode, exact save and restore, exact number of
            steps.
        AssertionError: the task breaks one of Gymnasium's.
    """
    built = make()
    env = _task(built)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Advice for learners from scratch, which asks for [-1, 1]; absolute targets are in robot units here.
        warnings.filterwarnings("ignore", ".*symmetric and normalized space", UserWarning)
        check_env(built.unwrapped, skip_render_check=True)
    _check_text(env)
    actions = np.random.default_rng(seed).uniform(
        env.action_spec.low, env.action_spec.high, (steps, env.action_spec.size)
    )
    first = _run(env, seed, actions)
    _same(first, _run(_task(make()), seed, actions), "a second environment with the same seed")
    _same(first, _run(env, seed, actions), "the same environment reset with the same seed")
    _check_restore(env, _task(make()), seed, actions)
    _check_length(env, seed)


def _task(env: gymnasium.Env[Any, Any]) -> Task:
    try:
        return task_of(env, "max_steps", "control_hz", "save", "restore")
    except TaskError as error:
        raise ConformanceError(str(error)) from error


def _check_text(env: Task) -> None:
    if not env.task_text:
        raise ConformanceError("task_text is empty; say the task in words.")
    if env.action_spec.rate_hz != env.control_hz:
        raise ConformanceError(f"action_spec has {env.action_spec.rate_hz} Hz, the task {env.control_hz} Hz.")


def _run(env: Task, seed: int, actions: NDArray[np.float64]) -> list[Observation]:
    observations = [env.reset(seed=seed)[0]]
    observations += _follow(env, actions)
    return observations


def _follow(env: Task, actions: NDArray[np.float64]) -> list[Observation]:
    """Step until the actions or the episode end, checking every step."""
    observations = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        check_sample(observation, env.features, source=type(env).__name__)
        if set(observation) != set(env.features):
            raise ConformanceError(
                f"observed {sorted(observation)}, but features lists {sorted(env.features)}."
            )
        if terminated and truncated:
            raise ConformanceError("a step is both terminated and truncated.")
        if not isinstance(info.get("success"), bool) or reward != float(info["success"]):
            raise ConformanceError(
                f"reward {reward} with info['success'] {info.get('success')!r}; reward is 1 on success."
            )
        observations.append(observation)
        if terminated or truncated:
            break
    return observations


def _check_restore(env: Task, other: Task, seed: int, actions: NDArray[np.float64]) -> None:
    half = len(actions) // 2
    if len(_run(env, seed, actions[:half])) <= half:
        raise ConformanceError(
            f"the episode of seed {seed} ends within {half} random steps; give another seed."
        )
    state = env.save()
    expected = _follow(env, actions[half:])
    other.reset(seed=seed + 1)
    other.restore(state)
    _same(expected, _follow(other, actions[half:]), "another environment after restore()")
    env.restore(state)
    _same(expected, _follow(env, actions[half:]), "the same environment after restore()")


def _check_length(env: Task, seed: int) -> None:
    env.reset(seed=seed)
    middle = (env.action_spec.low + env.action_spec.high) / 2
    steps, terminated, truncated = 0, False, False
    while steps < env.max_steps and not terminated and not truncated:
        _, _, terminated, truncated, _ = env.step(middle)
        steps += 1
    if not terminated and not (truncated and steps == env.max_steps):
        raise ConformanceError(f"truncated is {truncated} after {steps} of {env.max_steps} steps.")


def _same(expected: Sequence[Observation], found: Sequence[Observation], whose: str) -> None:
    if len(expected) != len(found):
        raise ConformanceError(f"{whose} ends after {len(found)} observations instead of {len(expected)}.")
    for step, (a, b) in enumerate(zip(expected, found, strict=True)):
        for key in a:
            if not np.array_equal(a[key], b[key]):
                raise ConformanceError(
                    f"{whose} differs in {key!r} at step {step}: {b[key]} instead of {a[key]}."
                )
