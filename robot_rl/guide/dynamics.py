"""Latent dynamics: the latent after the executed part of a chunk, from the latent before and the actions.

LPB (Sun et al. 2025, arXiv 2508.05941, section 4) and ReGuide (arXiv 2606.28939) train a vision transformer
over tokens of pictures and proprioception. Here the latent is one vector and the model a residual MLP, which
fits low-dimensional states and pooled features on a CPU; proprioception is part of the latent.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from data.config import to_dict
from robot_rl.runs import RunDirectory
from robot_rl.train.fitting import FitConfig, fit, optimiser
from robot_rl.train.state import TrainState

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float, Int

    from robot_rl.guide.frames import Frames

logger = logging.getLogger(__name__)

LEAST_GAIN, LEAST_HANDLE = 3.0, 2.0
"""How much worse "nothing changes", and the model with other rows' actions, must at least be."""


@dataclass(frozen=True)
class DynamicsConfig(FitConfig):
    """How the latent dynamics are trained."""

    steps: int = 1500
    """updates"""
    weight_decay: float = 1.0
    """of AdamW; large, since a few thousand transitions are soon known by heart"""
    hidden: int = 256
    """neurons per layer"""
    layers: int = 3
    """hidden layers"""
    holdout: float = 0.15
    """share of the trajectories that is held out to measure the error"""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        for name in ("hidden", "layers"):
            self.check_least(name, 1)
        if not 0 < self.holdout <= 0.5:
            raise ValueError(f"holdout is {self.holdout}, allowed is above 0 up to 0.5")


class LatentDynamics(nn.Module):
    """d(z, A) -> z after the executed steps; untrained it says that nothing changes.

    Args:
        size: D.
        steps: S, actions read.
        actions: A.
        hidden: neurons per layer.
        layers: number of hidden layers.
    """

    action_mean: Tensor
    action_std: Tensor

    def __init__(self, size: int, steps: int, actions: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        self.sizes = {"size": size, "steps": steps, "actions": actions, "hidden": hidden, "layers": layers}
        self.read = nn.Linear(size + steps * actions, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers - 1))
        self.write = nn.Linear(hidden, size)
        nn.init.zeros_(self.write.weight)
        nn.init.zeros_(self.write.bias)
        self.register_buffer("action_mean", torch.zeros(actions))
        self.register_buffer("action_std", torch.ones(actions))

    def forward(self, latent: Float[Tensor, "B D"], actions: Float[Tensor, "B S A"]) -> Float[Tensor, "B D"]:
        """Predict the latent after the actions.

        Args:
            latent: scaled.
            actions: in robot units.
        """
        scaled = (actions - self.action_mean) / self.action_std
        hidden = functional.silu(self.read(torch.cat([latent, scaled.flatten(1)], dim=1)))
        for layer in self.layers:
            hidden = hidden + functional.silu(layer(hidden))
        predicted: Tensor = latent + self.write(hidden)
        return predicted


@dataclass(frozen=True)
class DynamicsCheck:
    """Mean squared errors on held-out transitions, and whether guidance has a handle there.

    Attributes:
        error: of the model.
        stay: of "the latent stays as it is".
        permuted: of the model when each row is given the actions of another.
        transitions: number of them.
    """

    error: float
    stay: float
    permuted: float
    transitions: int

    def to_json(self) -> dict[str, float]:
        """The errors and their ratios to the model's."""
        least = max(self.error, 1e-12)
        ratios = {"stay_ratio": self.stay / least, "permuted_ratio": self.permuted / least}
        return {"error": self.error, "transitions": self.transitions, **ratios}

    def warn(self) -> None:
        """Log what is too weak for guidance to work."""
        ratios = self.to_json()
        if ratios["stay_ratio"] < LEAST_GAIN:
            logger.warning(
                "the latent dynamics are only %.1f times better than 'nothing changes' on held-out "
                "transitions (%.0f is wanted): give more rollouts or dynamics.steps",
                ratios["stay_ratio"],
                LEAST_GAIN,
            )
        if ratios["permuted_ratio"] < LEAST_HANDLE:
            logger.warning(
                "other actions change the predicted latent too little (error %.1f times, %.0f is wanted), so "
                "guidance has no handle: give more exploration",
                ratios["permuted_ratio"],
                LEAST_HANDLE,
            )


@torch.no_grad()
def check_dynamics(model: LatentDynamics, frames: Frames, rows: Int[Tensor, " M"]) -> DynamicsCheck:
    """Compare the model with its two rivals.

    Args:
        model: trained.
        frames: scaled.
        rows: numbers of transitions that it was not trained on.
    """
    before, after = frames.latents[frames.start[rows]], frames.latents[frames.end[rows]]
    actions = frames.actions[rows]
    # A shift by half the rows pairs transitions of different trajectories and is the same every time.
    others = actions.roll(max(len(rows) // 2, 1), 0)

    def error(predicted: Tensor) -> float:
        return float((predicted - after).square().mean())

    return DynamicsCheck(
        error(model(before, actions)), error(before), error(model(before, others)), len(rows)
    )


def fit_dynamics(
    folder: Path, config: DynamicsConfig, frames: Frames, *, seed: int, device: str = "cpu"
) -> tuple[LatentDynamics, DynamicsCheck]:
    """Train the dynamics in a run directory of its own, or go on with what is there.

    Args:
        folder: of the run.
        config: how.
        frames: scaled; some whole trajectories are held out.
        seed: of weights, batches and what is held out.
        device: where it is trained; it comes back on the CPU.

    Returns:
        The moving average, frozen, and its errors on what was held out.
    """
    train, held = _split(frames, config.holdout, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _network(config, frames, train)
    model.to(device)
    average = _network(config, frames, train)
    average.load_state_dict(model.state_dict())
    average.requires_grad_(False).eval().to(device)
    state = TrainState(model, average, optimiser(model, config), torch.Generator().manual_seed(seed))
    settings = {**to_dict(config), "seed": seed, "transitions": len(frames.start)}
    with RunDirectory.create(folder, settings, kind="dynamics", resume=True) as run:
        loss = partial(_loss, config, state, frames, train)
        error = partial(_error, average, frames, held)
        fit(config, run, state, loss, name="Training the latent dynamics", held_out=error)
        average.to("cpu")
        check = check_dynamics(average, frames, held)
        run.write_json("result.json", check.to_json())
    return average, check


def _network(config: DynamicsConfig, frames: Frames, train: Tensor) -> LatentDynamics:
    steps, width = frames.actions.shape[1:]
    model = LatentDynamics(frames.latents.shape[1], steps, width, hidden=config.hidden, layers=config.layers)
    actions = frames.actions[train].flatten(0, 1)
    model.action_mean.copy_(actions.mean(0))
    model.action_std.copy_(actions.std(0).clamp(min=1e-6))
    return model


def _split(frames: Frames, share: float, seed: int) -> tuple[Tensor, Tensor]:
    owners = torch.unique(frames.trajectory[frames.start])
    if len(owners) < 2:
        raise ValueError("one trajectory is not enough for latent dynamics: some are held out")
    order = owners[torch.randperm(len(owners), generator=torch.Generator().manual_seed(seed))]
    count = min(max(1, round(share * len(owners))), len(owners) - 1)
    return frames.transitions_of(order[count:]), frames.transitions_of(order[:count])


def _loss(config: DynamicsConfig, state: TrainState[LatentDynamics], frames: Frames, train: Tensor) -> Tensor:
    rows = train[torch.randint(len(train), (config.batch,), generator=state.generator)]
    return _squared(state.model, frames, rows)


def _squared(model: LatentDynamics, frames: Frames, rows: Tensor) -> Tensor:
    place: Any = model.action_mean.device
    before = frames.latents[frames.start[rows]].to(place)
    after = frames.latents[frames.end[rows]].to(place)
    return functional.mse_loss(model(before, frames.actions[rows].to(place)), after)


@torch.no_grad()
def _error(model: LatentDynamics, frames: Frames, rows: Tensor) -> float:
    return float(_squared(model, frames, rows))
