"""Behaviour cloning of a base policy: what ``robot-rl train`` runs."""

from __future__ import annotations

import functools
import logging
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from data.config import to_dict
from data.statistics import compute_statistics
from policies import checkpoint
from policies.device import check_device
from policies.flow import FlowPolicy
from policies.flow_config import TASK, FlowConfig
from robot_rl.progress import stage
from robot_rl.runs import RunDirectory
from robot_rl.seeds import MOST_SEED
from robot_rl.train.demonstrations import Demonstrations, Selection, read_demonstrations
from robot_rl.train.fitting import Progress, check_fit, fit, optimiser
from robot_rl.train.heldout import HeldOutError, held_out_error
from robot_rl.train.mixing import RowMixture, read_added
from robot_rl.train.report import write_report
from robot_rl.train.state import TrainState
from robot_rl.train.windows import End, TensorWindows, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.windows import Trajectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainConfig:
    """Train a base policy on demonstrations by behaviour cloning."""

    data: Path
    """an episode store, a run of robot-rl collect, or a LeRobotDataset v3 folder"""
    out: Path
    """folder of the run; the trained policy is written there too"""
    policy: Literal["flow"] = "flow"
    """which policy is trained"""
    network: FlowConfig = field(default_factory=FlowConfig)
    """what the policy reads and how large it is; no inputs means every feature of the data"""
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
        The run directory, which `policies.checkpoint.load` reads.

    Raises:
        ValueError: if the data do not fit the configuration.
        RunError: if the folder holds another run.
    """
    started = time.monotonic()
    settings: dict[str, Any] = to_dict(replace(config, resume=False, wandb=False))
    directory = RunDirectory.create(
        config.out, settings, kind="train", resume=config.resume, wandb=config.wandb
    )
    with directory as run:
        with stage("Reading demonstrations"):
            start = None if config.start is None else _read_start(config.start)
            demos = read_demonstrations(config.data, _selection(config, start))
            added = read_added(config.also, demos, _selection(config, start))
        network = _network(config, demos) if start is None else start.config
        parts = split(demos.trajectories, share=config.holdout, horizon=network.horizon, seed=config.seed)
        windows = _windows([*parts.train, *added], network, config.end)
        mixture = RowMixture(windows.trajectory, len(parts.train), config.also_share)
        state = _start(config, network, demos, windows) if start is None else _go_on(config, start)
        loss = functools.partial(_loss, config, state, windows, mixture)
        fit(config, run, state, loss, name="Training the base policy", progress=progress)
        error = None
        if parts.held:
            held = _windows(parts.held, network, "mask")
            error = held_out_error(state.average, held, seed=config.seed)
        facts = {"held_out": parts.text, "also": len(added), "seconds": time.monotonic() - started}
        _finish(run, state, demos, error, facts)
    return config.out


def _read_start(folder: Path) -> FlowPolicy:
    policy = checkpoint.load(folder)
    if not isinstance(policy, FlowPolicy):
        raise TypeError(f"start is {folder}, a {type(policy).__name__}: training goes on from a FlowPolicy")
    return policy


def _selection(config: TrainConfig, start: FlowPolicy | None) -> Selection:
    network = config.network if start is None else start.config
    return Selection(
        inputs=network.inputs,
        image_size=network.image_size,
        sources=config.sources,
        outcomes=config.outcomes,
        action=config.action,
        action_unit=config.action_unit,
    )


def _network(config: TrainConfig, demos: Demonstrations) -> FlowConfig:
    """Return the policy's configuration with its inputs filled in."""
    if config.network.inputs:
        return config.network
    tasks = {trajectory.task for trajectory in demos.trajectories}
    return replace(config.network, inputs=(*sorted(demos.features), *((TASK,) if len(tasks) > 1 else ())))


def _windows(trajectories: Sequence[Trajectory], network: FlowConfig, end: End) -> TensorWindows:
    return TensorWindows(
        trajectories,
        observation_steps=network.observation_steps,
        horizon=network.horizon,
        first_action=network.first_action,
        end=end,
    )


def _start(
    config: TrainConfig, network: FlowConfig, demos: Demonstrations, windows: TensorWindows
) -> TrainState[FlowPolicy]:
    """Build policy, average and optimiser, with normalisation from the training windows only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        policy = FlowPolicy(network, demos.features, demos.action_spec)
    vectors = [key for key, feature in demos.features.items() if not feature.is_image]
    arrays = {key: windows.used(key) for key in (*vectors, "action")}
    if network.relative_to is not None:
        arrays["action"] = _relative_actions(windows, network.relative_to)
    policy.fit(compute_statistics(arrays, demos.features), constant=config.constant)
    return _state(config, policy)


def _go_on(config: TrainConfig, start: FlowPolicy) -> TrainState[FlowPolicy]:
    """A student of a policy: what it was trained with stays in its normalisation."""
    student = start.student("copy")
    assert isinstance(student, FlowPolicy)
    return _state(config, student)


def _state(config: TrainConfig, policy: FlowPolicy) -> TrainState[FlowPolicy]:
    policy.to(check_device(config.device)).train()
    average = policy.student("copy")
    assert isinstance(average, FlowPolicy)
    average.requires_grad_(False).eval()
    return TrainState(policy, average, optimiser(policy, config), torch.Generator().manual_seed(config.seed))


def _relative_actions(windows: TensorWindows, key: str) -> NDArray[np.float32]:
    """All chunk entries minus their origin: statistics of absolute actions would not fit them."""
    batch = windows.batch(torch.arange(len(windows)))
    origin = batch.observation[key]
    assert isinstance(origin, torch.Tensor)
    return np.asarray((batch.action - origin[:, -1:])[windows.mask].numpy())


def _loss(
    config: TrainConfig, state: TrainState[FlowPolicy], windows: TensorWindows, mixture: RowMixture
) -> torch.Tensor:
    """Draw a batch; its loss."""
    policy, generator = state.model, state.generator
    rows = mixture.draw(config.batch, generator)
    batch = windows.batch(rows, policy.device)
    noise = torch.randn(batch.action.shape, generator=generator).to(policy.device)
    sigma = policy.draw_sigma(config.batch, generator)
    return policy.flow_loss(batch, noise=noise, sigma=sigma).mean()


def _finish(
    run: RunDirectory,
    state: TrainState[FlowPolicy],
    demos: Demonstrations,
    error: HeldOutError | None,
    facts: dict[str, Any],
) -> None:
    checkpoint.save(state.average, run.path)
    result: dict[str, Any] = {
        "source": demos.source,
        "demonstrations": len(demos.trajectories),
        "steps": sum(len(trajectory.actions) for trajectory in demos.trajectories),
        "policy_hash": state.average.hash(),
        **facts,
        "held_out_error": None if error is None else error.to_json(),
    }
    run.write_json("result.json", result)
    if error is None:
        return
    summary = error.to_json()
    run.log(state.step, {f"held_out/{j['name']}": j["policy"] for j in summary["joints"]})
    logger.info(
        "held-out error (%s): below holding the last action in %d of %d dimensions, %.2f times its error",
        facts["held_out"],
        summary["joints_better"],
        len(error.names),
        summary["mean_ratio"] or math.nan,
    )
    write_report(run.path, error, run.metrics(), result)
