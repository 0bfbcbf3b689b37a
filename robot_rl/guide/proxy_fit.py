"""Training of the two proxies: the reference on the base's sampler paths, the task's on demonstrations."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from data.config import to_dict
from policies.hooks import DenoiseHook, DenoiseState
from policies.noise import draw_noise
from policies.request import ChunkRequest
from policies.sampler import sample_chunk
from robot_rl.progress import stage
from robot_rl.runs import RunDirectory
from robot_rl.train.fitting import FitConfig, fit, optimiser
from robot_rl.train.state import TrainState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policies.policy import ChunkPolicy
    from robot_rl.guide.proxy import Proxy
    from robot_rl.train.windows import TensorWindows

_BATCH = 64


@dataclass(frozen=True)
class ProxyFit(FitConfig):
    """How one proxy is trained."""

    steps: int = 4000
    """updates; the paper takes 20,000 for the reference and 24,000 for the task's"""
    batch: int = 128
    """windows per update"""


@dataclass(frozen=True, eq=False)
class Paths:
    """What the base's sampler went through.

    Attributes:
        rows: (P,) window of each path.
        sigma: (N,) noise levels of the steps.
        x: (P, N, H, Z).
        velocity: (P, N, H, Z) the base's there.
    """

    rows: Int[Tensor, " P"]
    sigma: Float[Tensor, " N"]
    x: Float[Tensor, "P N H Z"]
    velocity: Float[Tensor, "P N H Z"]


class _Watch(DenoiseHook):
    """Writes the path down and changes nothing."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, Tensor, Tensor]] = []

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        x, velocity = (value.detach().cpu().clone() for value in (state.x, state.velocity))
        self.steps.append((state.sigma, x, velocity))
        return state.x, state.velocity


def watch_paths(
    policy: ChunkPolicy, windows: TensorWindows, rows: Int[Tensor, " P"], generator: torch.Generator
) -> Paths:
    """Let the base denoise for demonstrated observations, and keep x and velocity at every step.

    Args:
        policy: the base.
        windows: with its observations.
        rows: windows to denoise for; one may occur more than once, with other noise.
        generator: of the noise.
    """
    xs, velocities, sigmas = [], [], [0.0]
    with stage("Watching the base denoise", len(rows)) as reporter:
        for part in torch.split(rows, _BATCH):
            watch = _Watch()
            noise = draw_noise(policy.spec, [generator] * len(part), policy.device)
            sample_chunk(policy, ChunkRequest(windows.batch(part, policy.device).observation), noise, [watch])
            sigmas = [sigma for sigma, _, _ in watch.steps]
            xs.append(torch.stack([x for _, x, _ in watch.steps], 1))
            velocities.append(torch.stack([velocity for _, _, velocity in watch.steps], 1))
            reporter.advance(len(part))
    return Paths(rows, torch.tensor(sigmas), torch.cat(xs), torch.cat(velocities))


def fit_reference(
    folder: Path, settings: ProxyFit, start: Proxy, windows: TensorWindows, paths: Paths, *, seed: int
) -> Proxy:
    """Train the reference on recorded paths: || v_ref(x, sigma, o) - v_base ||^2.

    Args:
        folder: of the run; gone on with if it is there.
        settings: how.
        start: untrained, normalised.
        windows: of the demonstrations.
        paths: of the base on them.
        seed: of batches.

    Returns:
        The moving average, frozen.
    """

    def loss(state: TrainState[Proxy]) -> Tensor:
        chosen = torch.randint(len(paths.rows), (settings.batch,), generator=state.generator)
        step = torch.randint(len(paths.sigma), (settings.batch,), generator=state.generator)
        device = state.model.device
        code = state.model.encode(windows.batch(paths.rows[chosen], device).observation)
        x, target = paths.x[chosen, step].to(device), paths.velocity[chosen, step].to(device)
        return (state.model.velocity(x, paths.sigma[step].to(device), code) - target).square().mean()

    return _fit(folder, settings, start, loss, seed=seed, name="Training the reference proxy")


def fit_task(
    folder: Path,
    settings: ProxyFit,
    start: Proxy,
    windows: TensorWindows,
    clean: Float[Tensor, "M H Z"],
    *,
    real: int,
    seed: int,
) -> Proxy:
    """Train the task's proxy by flow matching on demonstrations, from the reference.

    Args:
        folder: of the run; gone on with if it is there.
        settings: how.
        start: the reference.
        windows: of the demonstrations.
        clean: each window's chunk in the base's space.
        real: dimensions that are not padding; the loss counts those.
        seed: of batches, noise and noise levels.

    Returns:
        The moving average, frozen.
    """

    def loss(state: TrainState[Proxy]) -> Tensor:
        generator, device = state.generator, state.model.device
        rows = torch.randint(len(windows), (settings.batch,), generator=generator)
        target = clean[rows]
        noise = torch.randn(target.shape, generator=generator)
        sigma = torch.rand(settings.batch, generator=generator)
        spread = sigma[:, None, None]
        x = (1 - spread) * target + spread * noise
        batch = windows.batch(rows, device)
        found = state.model.velocity(x.to(device), sigma.to(device), state.model.encode(batch.observation))
        error = (found - (noise - target).to(device))[..., :real].square().mean(2)
        assert batch.mask is not None
        return (error * batch.mask).sum() / batch.mask.sum().clamp(min=1)

    return _fit(folder, settings, start, loss, seed=seed, name="Training the task proxy")


@torch.no_grad()
def path_error(proxy: Proxy, windows: TensorWindows, paths: Paths) -> float:
    """Mean squared error of a proxy on paths, as a share of the variance of the base's velocity there.

    Args:
        proxy: the reference.
        windows: that the paths belong to.
        paths: that it was not trained on.
    """
    total = 0.0
    for part in torch.split(torch.arange(len(paths.rows)), _BATCH):
        code = proxy.encode(windows.batch(paths.rows[part], proxy.device).observation)
        for step, sigma in enumerate(paths.sigma):
            x = paths.x[part, step].to(proxy.device)
            found = proxy.velocity(x, sigma.to(proxy.device).expand(len(part)), code)
            total += float((found.cpu() - paths.velocity[part, step]).square().sum())
    spread = float((paths.velocity - paths.velocity.mean(0)).square().sum())
    return total / max(spread, 1e-12)


def _fit(
    folder: Path,
    settings: ProxyFit,
    start: Proxy,
    loss: Callable[[TrainState[Proxy]], Tensor],
    *,
    seed: int,
    name: str,
) -> Proxy:
    model, average = copy.deepcopy(start).requires_grad_(True).train(), copy.deepcopy(start)
    average.requires_grad_(False).eval()
    state = TrainState(model, average, optimiser(model, settings), torch.Generator().manual_seed(seed))
    with RunDirectory.create(folder, {**to_dict(settings), "seed": seed}, kind="proxy", resume=True) as run:
        fit(settings, run, state, partial(loss, state), name=name)
    return average
