"""One planning step for B rows: noise, denoising with hooks, selection. Where torch enters the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from policies.answering import Answer, AnsweringPolicy
from policies.flow_config import TASK
from policies.noise import draw_noise
from policies.policy import PolicyError, require_chunk_policy
from policies.request import ChunkRequest
from policies.sampler import sample_chunk
from robot_rl.correct.history import require_keys
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from policies.hooks import DenoiseHook
    from policies.policy import Policy, PolicySpec
    from policies.request import Condition
    from robot_rl.plans import Previous
    from robot_rl.select.selector import Selector


@dataclass(frozen=True)
class Planned:
    """Base chunks (B, H, A) in robot units, the noise they came from, and what they were selected from.

    `info` holds what hooks say about the chunks, each (B, ...).
    """

    chunk: NDArray[np.float32]
    noise: NDArray[np.float32] | None
    candidates: NDArray[np.float32] | None = None
    index: NDArray[np.int64] | None = None
    info: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@torch.no_grad()
def plan_chunks(
    policy: Policy,
    refiner: Refiner,
    *,
    past: Sequence[Mapping[str, NDArray[Any]]],
    tasks: Sequence[str],
    generators: Sequence[np.random.Generator],
    previous: Previous | None,
    delay: int,
    episode_ids: Sequence[str],
    deterministic: bool,
    gain: float = 1.0,
) -> Planned:
    """Compute a chunk for every row.

    Args:
        policy: The base.
        refiner: Its noise policy, hooks and selector take part.
        past: Latest observations, oldest first, each by key (B, ...); the first repeats while there are fewer
            than the policy reads.
        tasks: Task text per row.
        generators: Noise generator per row; each advances by one draw if the policy takes noise, and by what
            a selector draws.
        previous: Base chunks in execution.
        delay: Control steps until the new chunk can act.
        episode_ids: Name per row.
        deterministic: Whether the noise policy explores.
        gain: Share of the way from the drawn to the chosen noise; 0 leaves hooks and selector out too, so
            that the base alone is left, bit-equal.
    """
    refiner = refiner if gain else Refiner()
    rows = len(tasks)
    request = ChunkRequest(
        observation=_observation(policy.spec, past, tasks, keys_read(policy.spec, refiner)),
        previous_chunk=None if previous is None else torch.from_numpy(previous.chunk),
        consumed=torch.zeros(rows, dtype=torch.int64)
        if previous is None
        else torch.from_numpy(previous.consumed),
        delay=torch.full((rows,), delay),
        episode_ids=tuple(episode_ids),
    )
    noise = draw_noise(policy.spec, generators) if policy.spec.supports.noise else None
    return plan_request(policy, refiner, request, noise, generators, deterministic=deterministic, gain=gain)


@torch.no_grad()
def plan_request(
    policy: Policy,
    refiner: Refiner,
    request: ChunkRequest,
    noise: Tensor | None,
    generators: Sequence[np.random.Generator],
    *,
    condition: Condition = None,
    deterministic: bool = True,
    gain: float = 1.0,
) -> Planned:
    """Compute the chunks of a request; what the loop and a server have in common.

    Args:
        policy: The base.
        refiner: Its noise policy, hooks and selector take part.
        request: B rows.
        noise: Drawn for each row (B, *noise_shape); None if the policy takes none.
        generators: One per row; a selector draws the noise of its candidates from them.
        condition: See `policies.request.Condition`.
        deterministic: Whether the noise policy explores.
        gain: See `plan_chunks`.
    """
    refiner = refiner if gain else Refiner()
    if refiner.noise is not None:
        if noise is None:
            raise PolicyError(f"To choose the noise, the base must take it; {policy.spec.name!r} does not.")
        chosen = refiner.noise.propose(request, noise, deterministic=deterministic)
        # What is left as drawn stays so to the bit.
        noise = chosen if gain == 1 else torch.where(chosen == noise, noise, noise.lerp(chosen, gain))
    if refiner.select is not None:
        if condition is not None:
            raise ValueError("A selector compares unconditioned chunks; leave the condition out.")
        return _selected(policy, refiner.select, request, noise, generators)
    if refiner.hooks:
        chunk_policy = require_chunk_policy(policy, "guidance by hooks")
        chunk = sample_chunk(chunk_policy, request, noise=noise, hooks=refiner.hooks, condition=condition)
        return Planned(chunk.numpy(force=True), _array(noise), info=_info(refiner.hooks))
    if isinstance(policy, AnsweringPolicy):
        return _planned(policy.answer(request, noise, condition, deterministic=deterministic, gain=gain))
    return Planned(policy.chunk(request, noise, condition).numpy(force=True), _array(noise))


def _array(tensor: Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else tensor.numpy(force=True)


def _planned(answer: Answer) -> Planned:
    """What a policy with a refiner within says of its chunks."""
    info = {name: value.numpy(force=True) for name, value in answer.info.items()}
    chunk = answer.chunk.numpy(force=True)
    return Planned(chunk, _array(answer.noise), _array(answer.candidates), _array(answer.index), info)


def _info(hooks: Sequence[DenoiseHook]) -> dict[str, NDArray[Any]]:
    """What hooks say about the last chunk, by name; two of one kind would overwrite each other."""
    found: dict[str, NDArray[Any]] = {}
    for hook in hooks:
        said = {key: value.numpy(force=True) for key, value in hook.info().items()}
        if twice := sorted(found.keys() & said.keys()):
            raise ValueError(f"two hooks report {', '.join(twice)}; a refiner takes one hook of a kind")
        found |= said
    return found


def keys_read(spec: PolicySpec, refiner: Refiner) -> list[str]:
    """What policy, noise policy, hooks and selector read; the task's text last, if it is among it."""
    parts = [part for part in (refiner.noise, *refiner.hooks, refiner.select) if part is not None]
    keys = dict.fromkeys([*spec.features, *(key for part in parts for key in part.keys)])
    text = spec.reads_task or TASK in keys
    return [*(key for key in keys if key != TASK), *([TASK] if text else [])]


def _observation(
    spec: PolicySpec, past: Sequence[Mapping[str, NDArray[Any]]], tasks: Sequence[str], keys: Sequence[str]
) -> dict[str, Any]:
    """Observations as policy and hooks read them: (B, n_obs_steps, ...) by key, and the task texts."""
    seen = [key for key in keys if key != TASK]
    require_keys(past[-1], seen, who="The policy's guidance")
    window = [past[0]] * (spec.observation_steps - len(past)) + list(past)
    observation: dict[str, Any] = {
        key: torch.from_numpy(np.stack([frame[key] for frame in window], axis=1)) for key in seen
    }
    if TASK in keys:
        observation[TASK] = list(tasks)
    return observation


def _selected(
    policy: Policy,
    selector: Selector,
    request: ChunkRequest,
    noise: Tensor | None,
    generators: Sequence[np.random.Generator],
) -> Planned:
    """Let the selector propose candidates and choose one per row."""
    if noise is None:
        raise ValueError(f"The selector needs a policy that takes noise; {policy.spec.name} does not.")
    candidates = selector.propose(request, policy, noise, generators)
    index = selector.select(candidates, request)
    chosen = candidates[torch.arange(len(candidates)), index]
    return Planned(
        chosen.numpy(force=True),
        noise.numpy(force=True),
        candidates.numpy(force=True),
        index.numpy(force=True),
    )
