"""``robot-rl refine pps``: steer a frozen policy to a task it lacks, with two small proxies."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from data.statistics import compute_statistics
from policies.flow_config import TASK, FlowConfig
from policies.policy import require_chunk_policy
from robot_rl.guide.frames import read_data
from robot_rl.guide.proxy import Proxy
from robot_rl.guide.proxy_fit import ProxyFit, fit_reference, fit_task, path_error, watch_paths
from robot_rl.guide.proxy_steering import Form, ProxySteering
from robot_rl.method_config import MethodConfig
from robot_rl.one_pass import OnePass, refine_in_one_pass
from robot_rl.refiner import Refiner
from robot_rl.task_texts import TaskTexts
from robot_rl.train.windows import End, TensorWindows, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from data.features import Feature
    from data.windows import Trajectory
    from policies.policy import ChunkPolicy

logger = logging.getLogger(__name__)

MOST_PATH_ERROR = 0.05
"""Share of the velocity's variance above which a reference does not know the base well enough."""
_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class PpsConfig(MethodConfig):
    """Steer a policy to a task it lacks, from demonstrations, by the difference of two small flows."""

    data: Path
    """demonstrations of the task: an episode store, a run of robot-rl collect, or a LeRobotDataset v3
    folder"""
    inputs: tuple[str, ...] = ()
    """observation keys that the proxies read, also some that the base does not; when empty the base's, and
    the text ("task") too where the demonstrations have several"""
    hidden: int = 256
    """neurons per layer of a proxy"""
    layers: int = 3
    """hidden layers of a proxy"""
    paths: int = 2000
    """times that the base is watched while it denoises, for the reference"""
    reference: ProxyFit = field(default_factory=ProxyFit)
    """training of the proxy that imitates the base"""
    tuning: ProxyFit = field(default_factory=ProxyFit)
    """training of the proxy that starts from it and imitates the demonstrations"""
    gamma: float = 0.4
    """share of the difference that is added; 0.4 to 0.6 is best in the paper"""
    cap: float = 1.0
    """greatest length of the addition, as a share of the base's velocity"""
    form: Form = "difference"
    """"no_reference" and "specialist" are ablations"""
    control: Literal["none", "shuffled"] = "none"
    """"shuffled" tunes on demonstrations whose chunks belong to other observations: a negative control"""
    end: End = "mask"
    """chunk positions beyond a demonstration's end: left out, or its last action repeated"""
    holdout: float = 0.1
    """share of the demonstrations on which the reference is judged"""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        for name, low, high in (("hidden", 1, 8192), ("layers", 1, 64), ("paths", 1, 1_000_000)):
            self.check_range(name, low, high)
        self.check_range("gamma", 0, 2)
        self.check_range("holdout", 0.01, 0.5)


def pps(config: PpsConfig) -> Path:
    """Watch the base, train both proxies, save the hook.

    Args:
        config: see `PpsConfig`.

    Returns:
        The run directory; its folder ``refiner`` is what ``--refiner`` loads.

    Raises:
        RuntimeError: if the base's hash changed during the run.
        PolicyError: if the base keeps its denoising closed.
    """
    return refine_in_one_pass(config, "pps", _work)


def _work(here: OnePass[PpsConfig]) -> tuple[Refiner, dict[str, Any]]:
    config, run = here.config, here.run
    policy = require_chunk_policy(here.policy, "proxy steering")
    data = read_data(policy, config.data, also=[key for key in config.inputs if key != TASK])
    parts = split(data.trajectories, share=config.holdout, horizon=policy.spec.horizon, seed=config.seed)
    windows, held = (_windows(config, policy, part) for part in (parts.train, parts.held))
    generator = torch.Generator().manual_seed(config.seed)
    rows = torch.randint(len(windows), (config.paths,), generator=generator)
    paths = watch_paths(policy, windows, rows, generator)
    rows = torch.randint(len(held), (max(config.paths // 8, 16),), generator=generator)
    fresh = watch_paths(policy, held, rows, generator)
    reference = fit_reference(
        run.path / "reference",
        config.reference,
        _proxy(config, policy, windows, data.features),
        windows,
        paths,
        seed=config.seed,
    )
    error = path_error(reference, held, fresh)
    if error > MOST_PATH_ERROR:
        logger.warning(
            "the reference misses the base's velocity by %.0f %% of its variance on new paths (%.0f %% is "
            "wanted): give more paths, or reference.steps",
            100 * error,
            100 * MOST_PATH_ERROR,
        )
    task = fit_task(
        run.path / "task",
        config.tuning,
        reference,
        windows,
        _clean_chunks(config, policy, windows),
        real=policy.spec.action_size,
        seed=config.seed + 1,
    )
    hook = ProxySteering(reference, task, gamma=config.gamma, cap=config.cap, form=config.form)
    facts = {"demonstrations": len(data.trajectories), "held_out": parts.text, "path_error": error}
    return here.save(Refiner(hooks=(hook,))), facts


def _windows(config: PpsConfig, policy: ChunkPolicy, trajectories: Sequence[Trajectory]) -> TensorWindows:
    spec = policy.spec
    return TensorWindows(
        trajectories,
        observation_steps=spec.observation_steps,
        horizon=spec.horizon,
        first_action=spec.first_action,
        end=config.end,
    )


def _proxy(
    config: PpsConfig, policy: ChunkPolicy, windows: TensorWindows, features: Mapping[str, Feature]
) -> Proxy:
    """An untrained proxy, with its inputs normalised by the demonstrations."""
    spec = policy.spec
    told = TaskTexts.of(windows.tasks, reads_task=spec.reads_task)
    inputs = config.inputs or (*spec.features, *told.keys)
    if told.size and TASK not in inputs:
        logger.warning(
            "the demonstrations are of %d tasks, but the proxies do not read the text and follow their mean: "
            "add %s to the inputs",
            told.size,
            TASK,
        )
    horizon, width = spec.noise_shape
    shape = FlowConfig(
        inputs=inputs,
        horizon=horizon,
        executed_steps=spec.executed_steps,
        observation_steps=spec.observation_steps,
        first_action=spec.first_action,
        hidden=config.hidden,
        layers=config.layers,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        proxy = Proxy(shape, features, width)
    vectors = [key for key, feature in proxy.features.items() if not feature.is_image]
    proxy.encoder.fit(compute_statistics({key: windows.used(key) for key in vectors}, proxy.features))
    return proxy.to(config.device)


@torch.no_grad()
def _clean_chunks(config: PpsConfig, policy: ChunkPolicy, windows: TensorWindows) -> Float[Tensor, "M H Z"]:
    """Every demonstrated chunk in the base's space; of other windows for the negative control."""
    found = []
    for rows in torch.split(torch.arange(len(windows)), _BATCH):
        batch = windows.batch(rows, policy.device)
        found.append(policy.encode_action(batch.action, policy.encode(batch.observation)).cpu())
    clean = torch.cat(found)
    if config.control == "shuffled":
        clean = clean[torch.randperm(len(clean), generator=torch.Generator().manual_seed(config.seed))]
    return clean
