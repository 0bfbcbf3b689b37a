"""What guidance in the denoising costs: guided chunks beside unguided ones of the same network, in one run.

The policy is a flow of more than five million parameters with random weights: 24 numbers of state, 16 actions
of 7 dimensions, 10 steps. Guidance acts in every row and step that it may, the dearest case: a gate that
lets most chunks pass costs less. The ratio is that of the rates; 0.5 means twice the latency.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from harness import Contestant, Stopwatch, measure, parser, publish

from data.features import Feature
from data.statistics import compute_statistics
from hardware.action_spec import ActionGroup, ActionSpec
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from policies.request import ChunkRequest
from policies.sampler import sample_chunk
from robot_rl.guide.barrier import LatentBarrier
from robot_rl.guide.dynamics import LatentDynamics
from robot_rl.guide.hook import GuideModel
from robot_rl.guide.latents import Latents, LatentSource
from robot_rl.guide.phases import PhaseConfig, PhaseTargets
from robot_rl.guide.proxy import Proxy
from robot_rl.guide.proxy_steering import ProxySteering
from robot_rl.guide.real_time import RealTimeChunking, RealTimeConfig
from robot_rl.guide.reguide import PhaseGuide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.hooks import DenoiseHook

KEY = "observation.state"
STATE, ACTION, HORIZON, STEPS = 24, 7, 16, 10
FEATURES = {KEY: Feature((STATE,), "float32")}
SIZE = {"inputs": (KEY,), "horizon": HORIZON, "steps": STEPS}
UNGUIDED = "unguided"


def base() -> FlowPolicy:
    """Builds the policy, fitted to made-up statistics."""
    generator = np.random.default_rng(0)
    group = ActionGroup("tool", ACTION, "delta", "joint", unit="rad", low=(-1.0,), high=(1.0,))
    policy = FlowPolicy(FlowConfig(**SIZE, hidden=1280, layers=4), FEATURES, ActionSpec((group,), 20.0))
    made_up = {KEY: (1000, STATE), "action": (1000, ACTION)}
    policy.fit(compute_statistics({key: generator.normal(size=shape) for key, shape in made_up.items()}))
    return policy.requires_grad_(False).eval()


def latent_model(policy: FlowPolicy) -> GuideModel:
    """Builds latent dynamics of the default size."""
    dynamics = LatentDynamics(STATE, policy.spec.executed_steps, ACTION, hidden=256, layers=3)
    latents = Latents(LatentSource(False, (KEY,)), torch.zeros(STATE), torch.ones(STATE), STATE)
    return GuideModel(latents, dynamics.requires_grad_(False).eval())


def barrier(policy: FlowPolicy) -> LatentBarrier:
    """Builds a barrier that acts in every row and step: 5,000 demonstrated states, none of them near."""
    bank = torch.randn(5000, STATE)
    return LatentBarrier(latent_model(policy), bank, threshold=0.0, guided_steps=STEPS - 1)


def phases(policy: FlowPolicy) -> PhaseGuide:
    """Builds guidance by five phases of fifty prototypes that acts in every row and step."""
    flat, used = torch.ones(5), torch.ones(5, 50, dtype=torch.bool)
    far = 1e9 * flat
    targets = PhaseTargets(torch.randn(5, 50, STATE), used, flat, -far, far, -far)
    return PhaseGuide(latent_model(policy), targets, PhaseConfig(), guided_steps=STEPS - 1)


def steering(policy: FlowPolicy) -> ProxySteering:
    """Builds proxy steering with proxies of the default size."""
    shape = FlowConfig(**SIZE)
    proxies = [Proxy(shape, FEATURES, policy.spec.noise_shape[1]) for _ in range(2)]
    for proxy in proxies:
        proxy.encoder.fit(compute_statistics({KEY: np.random.default_rng(0).normal(size=(1000, STATE))}))
    return ProxySteering(*proxies)


def contestants(policy: FlowPolicy, rows: int, calls: int) -> list[Contestant]:
    """Returns the unguided policy and each kind of guidance, for a number of rows."""
    asked = ChunkRequest(
        {KEY: torch.randn(rows, 1, STATE)},
        previous_chunk=torch.randn(rows, HORIZON, ACTION),
        consumed=torch.full((rows,), 8),
        delay=torch.full((rows,), 4),
        episode_ids=tuple(map(str, range(rows))),
    )
    noise = torch.randn(rows, *policy.spec.noise_shape)
    kinds: dict[str, list[DenoiseHook]] = {
        UNGUIDED: [],
        "latent barrier": [barrier(policy)],
        "phases (ReGuide)": [phases(policy)],
        "proxy steering": [steering(policy)],
        "real-time chunking, identity": [RealTimeChunking()],
        "real-time chunking, network": [RealTimeChunking(RealTimeConfig(gradient="network"))],
    }

    def turn(hooks: list[DenoiseHook], stopwatch: Stopwatch) -> int:
        with torch.no_grad(), stopwatch:
            for _ in range(calls):
                sample_chunk(policy, asked, noise, hooks)
        return calls

    parameters = sum(each.numel() for each in policy.parameters())
    settings = {"rows": rows, "parameters": parameters, "denoising_steps": STEPS, "calls": calls}
    unguided = f"{UNGUIDED}, B = {rows}"
    return [
        Contestant(
            f"{name}, B = {rows}", partial(turn, hooks), "chunk", unguided if hooks else None, settings
        )
        for name, hooks in kinds.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--calls", type=int, default=20, help="chunks in a turn")
    command.add_argument("--rows", type=int, nargs="*", default=[1, 8], help="batch sizes B")
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = base()
    made = [each for rows in options.rows for each in contestants(policy, rows, options.calls)]
    publish("guidance_speed", measure(made, repeats=options.repeats), json_path=options.json)


if __name__ == "__main__":
    main()
