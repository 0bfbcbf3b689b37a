"""Behaviour cloning of a base policy: what ``robot-rl train`` runs."""

from __future__ import annotations

import functools
import logging
import math
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from data.config import to_dict
from policies.device import check_device
from policies.flow_config import FlowConfig
from robot_rl.progress import stage
from robot_rl.runs import RunDirectory
from robot_rl.seeds import MOST_SEED
from robot_rl.train.demonstrations import Demonstrations, Selection, read_demonstrations
from robot_rl.train.diffusion_settings import DiffusionSettings
from robot_rl.train.fitting import Progress, check_fit, fit, optimiser
from robot_rl.train.flow import FlowCloning
from robot_rl.train.heldout import HeldOutError, held_out_error
from robot_rl.train.mixing import RowMixture, read_added
from robot_rl.train.report import write_report
from robot_rl.train.state import TrainState
from robot_rl.train.windows import End, TensorWindows, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data.windows import Trajectory
    from robot_rl.train.kinds import Cloning, WindowShape

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainConfig:
    """Train a base policy on demonstrations by behaviour cloning."""

    data: Path
    """an episode store, a run of robot-rl collect, or a LeRobotDataset v3 folder"""
    out: Path
    """folder of the run; the trained policy is written there too"""
    policy: Literal["flow", "diffusion"] = "flow"
    """which policy is trained: ours, or LeRobot's Diffusion Policy, which becomes a LeRobot checkpoint"""
    network: FlowConfig = field(default_factory=FlowConfig)
    """what the flow policy reads and how large it is; no inputs means every feature of the data"""
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    """the same of the Diffusion Policy"""
    steps: int = 4000
    """updates"""
    batch: int = 256
    """windows per update"""
    learning_rate: float = 1e-3
    """of AdamW after the warm-up; falls to 0 along a cosine"""
    warmup: int = 100
    """updates in which the learning rate rises"""
    weight_decay: float = 1e-6
    """of AdamW"""
    gradient_clip: float = 1.0
    """greatest norm of a gradient"""
    average: float = 0.999
    """decay of the moving average of the weights, which is what training returns"""
    holdout: float = 0.1
    """share of the demonstrations that is held out to measure the action error; 0 trains on all"""
    end: End = "mask"
    """chunk positions beyond a demonstration's end: left out of the loss, or its last action repeated"""
    sources: tuple[str, ...] = ("demo", "human")
    """whose steps are imitated"""
    outcomes: tuple[str, ...] = ("success", "unknown")
    """endings of the episodes that are imitated"""
    action: Literal["action", "action_intended"] = "action"
    """what is imitated: the executed action, or the one that was meant, before noise and guard"""
    action_unit: str = ""
    """unit of the actions where the data do not say, such as deg"""
    constant: Literal["clamp", "refuse"] = "clamp"
    """what becomes of dimensions that hardly move in the data"""
    start: Path | None = None
    """policy to go on from, with its shape and its normalisation; none starts from random weights"""
    also: tuple[Path, ...] = ()
    """episode stores whose successful episodes are imitated besides, whoever acted in them"""
    also_share: float | None = None
    """share of each batch that is drawn from them; as many as there are when not given"""
    checkpoint_steps: int = 1000
    """updates between checkpoints"""
    seed: int = 0
    """of weights, batches and noise"""
    device: str = "cpu"
    """torch device"""
    wandb: bool = False
    """also log to Weights & Biases"""
    resume: bool = False
    """go on from the last checkpoint"""

    def __post_init__(self) -> None:
        """Check the values."""
        check_fit(self)
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}, allowed is 1 or more")
        if not 0 <= self.holdout <= 0.5:
            raise ValueError(f"holdout is {self.holdout}, allowed is 0 to 0.5: the rest is trained on")
        if self.also_share is not None and not (self.also and 0 < self.also_share <= 1):
            raise ValueError(
                f"also_share is {self.also_share}, allowed is above 0 up to 1, where also names stores"
            )
        if not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"seed is {self.seed}, allowed is 0 to {MOST_SEED:,}")
        if self.network.conditions:
            raise ValueError("behaviour cloning gives no conditions: leave network.conditions empty")


def train(config: TrainConfig, progress: Progress | None = None) -> Path:
    """Train, measure the held-out error, and save the policy.

    Args:
        config: see `TrainConfig`.
        progress: called after every update, besides the progress bar.

    Returns:
        The run directory, which `policies.loading.load` reads.

    Raises:
        ValueError: if the data do not fit the configuration.
        RunError: if the folder holds another run.
    """
    started = time.monotonic()
    settings: dict[str, Any] = to_dict(replace(config, resume=False, wandb=False))
    directory = RunDirectory.create(
        config.out, settings, kind="train", resume=config.resume, wandb=config.wandb
    )
    with directory as run, tempfile.TemporaryDirectory(prefix="robot-rl-train-") as scratch:
        with stage("Reading demonstrations"):
            kind = _kind(config, Path(scratch))
            demos = read_demonstrations(config.data, _selection(config, kind.shape))
            added = read_added(config.also, demos, _selection(config, kind.shape))
        shape = kind.shape
        parts = split(demos.trajectories, share=config.holdout, horizon=shape.horizon, seed=config.seed)
        windows = _windows([*parts.train, *added], shape, config.end)
        mixture = RowMixture(windows.trajectory, len(parts.train), config.also_share)
        state = _state(config, kind, kind.build(demos, windows))
        loss = functools.partial(_loss, config, kind, state, windows, mixture)
        fit(config, run, state, loss, name="Training the base policy", progress=progress)
        error = None
        if parts.held:
            held = _windows(parts.held, shape, "mask")
            error = held_out_error(kind.policy(state.average), held, seed=config.seed)
        facts: dict[str, Any] = {"policy_hash": kind.policy(state.average).hash(), "held_out": parts.text}
        facts |= {"also": len(added), "seconds": time.monotonic() - started}
        kind.save(state.average, run.path)
        _finish(run, state.step, demos, error, facts)
    return config.out


def _kind(config: TrainConfig, scratch: Path) -> Cloning[Any]:
    """What is particular to the policy that is trained."""
    if config.policy == "diffusion":
        from robot_rl.train.diffusion import DiffusionCloning

        return DiffusionCloning(
            config.diffusion,
            constant=config.constant,
            start=config.start,
            seed=config.seed,
            scratch=scratch,
        )
    return FlowCloning(config.network, constant=config.constant, start=config.start, seed=config.seed)


def _selection(config: TrainConfig, shape: WindowShape) -> Selection:
    return Selection(
        inputs=shape.inputs,
        image_size=shape.image_size,
        sources=config.sources,
        outcomes=config.outcomes,
        action=config.action,
        action_unit=config.action_unit,
    )


def _windows(trajectories: Sequence[Trajectory], shape: WindowShape, end: End) -> TensorWindows:
    return TensorWindows(
        trajectories,
        observation_steps=shape.observation_steps,
        horizon=shape.horizon,
        first_action=shape.first_action,
        end=end,
    )


def _state(config: TrainConfig, kind: Cloning[Any], model: Any) -> TrainState[Any]:  # noqa: ANN401 - of the kind
    model.to(check_device(config.device)).train()
    average = kind.copy(model)
    average.requires_grad_(requires_grad=False).eval()
    return TrainState(model, average, optimiser(model, config), torch.Generator().manual_seed(config.seed))


def _loss(
    config: TrainConfig,
    kind: Cloning[Any],
    state: TrainState[Any],
    windows: TensorWindows,
    mixture: RowMixture,
) -> torch.Tensor:
    """Draw a batch; its loss."""
    rows = mixture.draw(config.batch, state.generator)
    batch = windows.batch(rows, kind.policy(state.model).device)
    return kind.loss(state.model, batch, state.generator)


def _finish(
    run: RunDirectory,
    step: int,
    demos: Demonstrations,
    error: HeldOutError | None,
    facts: dict[str, Any],
) -> None:
    result: dict[str, Any] = {
        "source": demos.source,
        "demonstrations": len(demos.trajectories),
        "steps": sum(len(trajectory.actions) for trajectory in demos.trajectories),
        **facts,
        "held_out_error": None if error is None else error.to_json(),
    }
    run.write_json("result.json", result)
    if error is None:
        return
    summary = error.to_json()
    run.log(step, {f"held_out/{j['name']}": j["policy"] for j in summary["joints"]})
    logger.info(
        "held-out error (%s): below holding the last action in %d of %d dimensions, %.2f times its error",
        facts["held_out"],
        summary["joints_better"],
        len(error.names),
        summary["mean_ratio"] or math.nan,
    )
    write_report(run.path, error, run.metrics(), result)
