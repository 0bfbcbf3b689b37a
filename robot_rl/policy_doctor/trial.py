"""A policy tried out: against its own program, against the clock, and against what methods need."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from policies.conformance import random_request
from policies.noise import draw_noise
from policies.parity import HasOriginal, check_parity
from policies.policy import PolicyError
from policies.request import ChunkRequest
from robot_rl.doctor import Finding, Status
from robot_rl.methods import check_base, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from data.records import Episode
    from policies.policy import Policy, PolicySpec
    from robot_rl.policy_doctor.sides import Side

_ROWS = 3
_TOLERANCE = 1e-5


def request_for(policy: Policy, data: Side | None) -> tuple[ChunkRequest, str]:
    """Return observations to try a policy on, and what they are.

    Args:
        policy: whose observations are wanted.
        data: recordings; where there are none, or they lack a key, the observations are random.
    """
    spec = policy.spec
    if data is not None and all(key in data.episodes[0].observations for key in spec.features):
        places = [(e, step) for e in data.episodes for step in range(0, len(e), max(1, len(e) // _ROWS))]
        chosen = places[:: max(1, len(places) // _ROWS)][:_ROWS]
        return ChunkRequest(_frames(spec, chosen)), f"{len(chosen)} recorded frames"
    return random_request(policy, torch.Generator().manual_seed(0), _ROWS), "random observations"


def try_parity(policy: Policy, request: ChunkRequest, what: str) -> Finding:
    """Compare the chunk through our sampler with the checkpoint's own program."""
    if not isinstance(policy, HasOriginal):
        return Finding("parity", Status.OK, "a policy of this project, which has no other program")
    parity = check_parity(policy, request)
    detail = (
        f"greatest difference {parity.difference:.2g} of normalised actions up to {parity.size:.2g}, {what}"
    )
    if parity.within(_TOLERANCE):
        return Finding("parity", Status.OK, detail)
    remedy = "do not refine it; report the checkpoint's config.json and this line"
    return Finding("parity", Status.DIFFERS, detail, remedy)


def try_latency(policy: Policy, request: ChunkRequest, chunks: int) -> Iterator[Finding]:
    """Time chunks of one robot and say how to run the policy.

    Args:
        policy: on the device where it will run.
        request: observations; the first row is used.
        chunks: number of chunks timed, after one for warming up.
    """
    one, seconds = request.rows([0]), []
    generator = np.random.default_rng(0)
    for _ in range(chunks + 1):
        noise = draw_noise(policy.spec, [generator]) if policy.spec.supports.noise else None
        began = time.perf_counter()
        with torch.no_grad():
            policy.chunk(one, noise).numpy(force=True)  # waits for the device too
        seconds.append(time.perf_counter() - began)
    median, late = np.quantile(seconds[1:], (0.5, 0.95))
    times = f"p50 {1e3 * median:.1f} ms, p95 {1e3 * late:.1f} ms over {chunks} chunks of one robot"
    yield Finding("chunk latency", Status.OK, times)
    yield recommend(policy.spec, float(late))


def recommend(spec: PolicySpec, late: float) -> Finding:
    """Say how to run a policy whose chunks take `late` seconds (p95).

    Args:
        spec: its rate and chunk.
        late: seconds.
    """
    steps = math.ceil(late * spec.rate_hz)
    spare = spec.horizon - spec.first_action - spec.executed_steps
    period = f"a control step is {1e3 / spec.rate_hz:.0f} ms"
    if steps <= 1:
        return Finding("run it", Status.OK, f"synchronously: {period}, and a chunk is ready within it")
    if steps <= spare:
        how = "robot-rl refine rtc and robot_rl.BackgroundPlanner"
        if not spec.supports.velocity:
            how = "robot_rl.BackgroundPlanner (its chunks cannot be joined: the denoising is closed)"
        return Finding("run it", Status.OK, f"with {how}: {period}, a chunk takes {steps} of them")
    detail = f"{period}, a chunk takes {steps} of them, and only {spare} actions are left over meanwhile"
    return Finding(
        "run it",
        Status.OPTIONAL,
        detail,
        "robot-rl serve on a computer with a GPU, fewer denoising steps, or fewer executed steps",
    )


def try_methods(policy: Policy) -> Iterator[Finding]:
    """Say which refinement methods the policy supports."""
    for name, method in known().items():
        try:
            check_base(policy, method)
        except PolicyError as error:
            yield Finding(f"refine {name}", Status.OPTIONAL, "not with this policy", str(error).split(";")[0])
        else:
            yield Finding(f"refine {name}", Status.OK, method.summary)


def _frames(spec: PolicySpec, places: list[tuple[Episode, int]]) -> dict[str, Tensor | list[str]]:
    found: dict[str, Tensor | list[str]] = {}
    for key in spec.features:
        rows = []
        for episode, step in places:
            past = [max(step - back, 0) for back in reversed(range(spec.observation_steps))]
            rows.append(np.stack([np.asarray(episode.observations[key][each]) for each in past]))
        found[key] = torch.from_numpy(np.stack(rows))
    if spec.reads_task:
        found["task"] = [episode.task for episode, _ in places]
    return found
