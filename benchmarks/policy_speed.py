"""Time to denoise one action chunk: the native flow policy beside LeRobot's Diffusion policy, in one run.

Both read a state vector of 24 numbers, denoise 16 actions of 3 dimensions in 10 steps from a given noise, and
have about the same number of parameters (a multilayer perceptron against a U-Net over the chunk). Weights are
random: speed does not depend on them. The unit is a call for a whole batch.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import Contestant, Stopwatch, measure, parser, publish

from data.features import Feature
from data.statistics import compute_statistics
from hardware.action_spec import ActionGroup, ActionSpec
from policies.flow import FlowPolicy
from policies.flow_config import FlowConfig
from policies.request import ChunkRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STATE, ACTION, HORIZON, STEPS = 24, 3, 16, 10
PEER = "LeRobot Diffusion"
PEER_SIZE = {"down_dims": (24, 48), "diffusion_step_embed_dim": 64, "kernel_size": 3}


def native() -> FlowPolicy:
    """Builds the flow policy at its default size, fitted to made-up statistics."""
    generator = np.random.default_rng(0)
    features = {"observation.state": Feature((STATE,), "float32")}
    spec = ActionSpec(
        (ActionGroup("tool", ACTION, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,)),), 20.0
    )
    policy = FlowPolicy(FlowConfig(inputs=tuple(features), horizon=HORIZON, steps=STEPS), features, spec)
    made_up = {"observation.state": (1000, STATE), "action": (1000, ACTION)}
    policy.fit(compute_statistics({key: generator.normal(size=shape) for key, shape in made_up.items()}))
    return policy.eval()


def why_no_peer() -> str | None:
    """Says what is missing for the peer, or None."""
    missing = [name for name in ("lerobot", "diffusers") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def peer() -> Any:  # noqa: ANN401 - LeRobot is optional
    """Builds LeRobot's diffusion policy with a U-Net of about the native policy's size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LeRobot's dependencies, on import
        from lerobot.configs.types import FeatureType, PolicyFeature
        from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
        from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

        config = DiffusionConfig(
            n_obs_steps=1,
            horizon=HORIZON,
            n_action_steps=8,
            input_features={
                "observation.state": PolicyFeature(FeatureType.STATE, (STATE - 1,)),
                "observation.environment_state": PolicyFeature(FeatureType.ENV, (1,)),
            },
            output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION,))},
            noise_scheduler_type="DDIM",
            num_inference_steps=STEPS,
            device="cpu",
            **PEER_SIZE,
        )
        return DiffusionPolicy(config).eval()


def native_call(policy: FlowPolicy, rows: int) -> Callable[[], object]:
    """Returns what denoises a chunk for this many rows."""
    request = ChunkRequest({"observation.state": torch.randn(rows, 1, STATE)})
    noise = torch.randn(rows, HORIZON, ACTION)
    return lambda: policy.chunk(request, noise)


def peer_call(policy: Any, rows: int) -> Callable[[], object]:  # noqa: ANN401 - LeRobot is optional
    """Returns what denoises a chunk for this many rows."""
    observation = {
        "observation.state": torch.randn(rows, 1, STATE - 1),
        "observation.environment_state": torch.randn(rows, 1, 1),
    }
    noise = torch.randn(rows, HORIZON, ACTION)
    return lambda: policy.diffusion.generate_actions(observation, noise)


def contestant(
    name: str,
    call: Callable[[], object],
    policy: torch.nn.Module,
    *,
    calls: int,
    rows: int,
    peer_name: str | None = None,
) -> Contestant:
    """Times this many calls without gradients."""

    def turn(stopwatch: Stopwatch) -> int:
        with torch.no_grad(), stopwatch:
            for _ in range(calls):
                call()
        return calls

    parameters = sum(each.numel() for each in policy.parameters())
    settings = {"rows": rows, "parameters": parameters, "denoising_steps": STEPS, "calls": calls}
    return Contestant(name, turn, "chunk", peer_name, settings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--calls", type=int, default=50, help="chunks in a turn")
    command.add_argument("--rows", type=int, nargs="*", default=[1, 8], help="batch sizes B")
    command.add_argument("--no-peer", action="store_true", help="leave LeRobot out")
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    reason = "left out on request" if options.no_peer else why_no_peer()
    own, other = native(), peer() if reason is None else None
    contestants = []
    for rows in options.rows:
        name = f"{PEER}, B = {rows}"
        call = native_call(own, rows)
        sizes = {"calls": options.calls, "rows": rows}
        contestants.append(contestant(f"native flow, B = {rows}", call, own, **sizes, peer_name=name))
        if other is not None:
            contestants.append(contestant(name, peer_call(other, rows), other, **sizes))
    skipped = {} if reason is None else {PEER: reason}
    figures = measure(contestants, repeats=options.repeats)
    publish("policy_speed", figures, skipped=skipped, json_path=options.json)


if __name__ == "__main__":
    main()
