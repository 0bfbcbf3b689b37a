"""What our sampler costs a LeRobot policy that nothing guides: its chunk through us and through LeRobot.

The policy is LeRobot's Diffusion of about five million parameters with random weights: 24 numbers of state
read twice, 16 actions of 7 dimensions, DDIM in 10 steps. Both sides start from a raw observation and end with
actions in robot units, pre- and post-processing included, for the same noise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from harness import Contestant, Stopwatch, measure, parser, publish

from data.features import Feature
from policies.lerobot.creating import create, new_config
from policies.lerobot.mapping import RobotMapping
from policies.loading import load
from policies.request import ChunkRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.lerobot.base import LeRobotPolicy

STATE, ACTION, STEPS = 24, 7, 10
KEY, OTHER = "observation.state", "observation.environment_state"
SIZE = {"horizon": 16, "n_action_steps": 8, "n_obs_steps": 1, "num_inference_steps": STEPS}
LEROBOT = "LeRobot's own call"


def checkpoint(folder: Path, down_dims: tuple[int, ...]) -> Path:
    """Writes the policy with random weights and made-up statistics."""
    features = {KEY: Feature((STATE,), "float32"), OTHER: Feature((STATE,), "float32")}
    config = new_config(
        "diffusion", features, ACTION, noise_scheduler_type="DDIM", down_dims=down_dims, **SIZE
    )
    widths = {KEY: STATE, OTHER: STATE, "action": ACTION}
    sides = (("min", -1.0), ("max", 1.0), ("mean", 0.0), ("std", 1.0))
    statistics = {
        key: {name: np.full(width, value, np.float32) for name, value in sides}
        for key, width in widths.items()
    }
    return create(folder, config, statistics, RobotMapping(rate_hz=20.0))


def our_call(folder: Path, rows: int) -> tuple[LeRobotPolicy, Callable[[], torch.Tensor]]:
    """Returns the policy and what computes a chunk through our sampler."""
    policy = load(folder)
    seen, noise = inputs(rows)
    request = ChunkRequest({key: value[:, None] for key, value in seen.items()})
    return policy, lambda: policy.chunk(request, noise)  # type: ignore[return-value] # of this family


def lerobots_call(folder: Path, rows: int) -> Callable[[], torch.Tensor]:
    """Returns what computes the same chunk through LeRobot."""
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
    from lerobot.policies.factory import make_pre_post_processors

    policy = DiffusionPolicy.from_pretrained(folder)
    before, after = make_pre_post_processors(policy.config, str(folder))
    seen, noise = inputs(rows)

    def call() -> torch.Tensor:
        batch = before({key: value[:, None] for key, value in seen.items()})
        chosen = {key: batch[key] for key in seen}
        chunk: torch.Tensor = after(policy.predict_action_chunk(chosen, noise=noise))
        return chunk

    return call


def inputs(rows: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Returns random states and noise, the same each time."""
    generator = torch.Generator().manual_seed(0)
    seen = {key: torch.rand(rows, STATE, generator=generator) for key in (KEY, OTHER)}
    return seen, torch.randn(rows, SIZE["horizon"], ACTION, generator=generator)


def contestant(
    name: str, call: Callable[[], object], calls: int, rows: int, peer: str | None = None
) -> Contestant:
    """Times this many calls without gradients."""

    def turn(stopwatch: Stopwatch) -> int:
        with torch.no_grad(), stopwatch:
            for _ in range(calls):
                call()
        return calls

    return Contestant(name, turn, "chunk", peer, {"rows": rows, "denoising_steps": STEPS, "calls": calls})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--calls", type=int, default=20, help="chunks in a turn")
    command.add_argument("--rows", type=int, nargs="*", default=[1, 8], help="batch sizes B")
    command.add_argument("--down-dims", type=int, nargs="*", default=[128, 256], help="of the U-Net")
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    contestants = []
    with tempfile.TemporaryDirectory() as place:
        folder = checkpoint(Path(place), tuple(options.down_dims))
        for rows in options.rows:
            own, other = f"our sampler, B = {rows}", f"{LEROBOT}, B = {rows}"
            _, call = our_call(folder, rows)
            contestants.append(contestant(own, call, options.calls, rows, other))
            contestants.append(contestant(other, lerobots_call(folder, rows), options.calls, rows))
        figures = measure(contestants, repeats=options.repeats)
    publish("adapter_speed", figures, json_path=options.json)


if __name__ == "__main__":
    main()
