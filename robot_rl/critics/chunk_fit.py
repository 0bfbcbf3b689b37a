"""Training of a chunk critic on rollouts of the policy that it judges: TD over chunks, offline."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.config import to_dict
from data.records import Episode
from data.replay import ReplayBuffer
from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.learn.shuffling import Rewards
from robot_rl.noise.chunks import ChunkData, chunk_recordings
from robot_rl.runs import RunDirectory
from robot_rl.train.fitting import FitConfig, fit, optimiser
from robot_rl.train.state import TrainState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from data.replay import Batch

logger = logging.getLogger(__name__)

LATENT, NEXT = "latent", "next"
LEAST_EXPLAINED = 0.1
"""Share of the spread of returns below which a critic is too weak to follow."""


@dataclass(frozen=True)
class ChunkFit(FitConfig):
    """How a chunk critic is trained."""

    learning_rate: float = 3e-4
    """of AdamW after the warm-up; falls to 0 along a cosine"""
    gradient_clip: float = 10.0
    """greatest norm of a gradient"""
    average: float = 0.995
    """decay of the moving average of the weights, which is the target network and what is used"""
    critics: int = 4
    """K members of the ensemble"""
    width: int = 256
    """units of a hidden layer"""
    n_step: int = 1
    """chunks whose rewards are summed before bootstrapping"""
    gamma: float = 0.99
    """discount per control step"""
    return_range: tuple[float, float] = (0.0, 1.0)
    """least and greatest discounted return of the task's reward; targets stay inside"""
    holdout: float = 0.15
    """share of the episodes on which the critic is judged"""
    shuffle_rewards: int = 0
    """negative control: rewards of so many successive episodes are shuffled among them; 0: not at all"""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        for name in ("critics", "width", "n_step"):
            self.check_least(name, 1)
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma is {self.gamma}, allowed is above 0 and below 1")
        if not 0 < self.holdout <= 0.5:
            raise ValueError(f"holdout is {self.holdout}, allowed is above 0 up to 0.5")


@dataclass(frozen=True, eq=False)
class Judged:
    """An episode whose observations are latents.

    Attributes:
        episode: as the control loop recorded it.
        latents: (T + 1, D), in units of spread.
    """

    episode: Episode
    latents: NDArray[np.float32]


@dataclass(frozen=True)
class CriticCheck:
    """How well a critic foresees the returns of episodes that it did not learn from.

    Attributes:
        explained: share of the returns' spread that it explains; 0 is no better than their mean.
        bias: mean value less mean return; positive is too hopeful.
        chunks: number of chunks it was asked about.
    """

    explained: float
    bias: float
    chunks: int

    def warn(self) -> None:
        """Log that the critic is too weak."""
        if self.explained < LEAST_EXPLAINED:
            logger.warning(
                "the critic explains %.0f %% of the returns' spread on held-out episodes (%.0f %% is "
                "wanted): give more rollouts, or a base that sometimes succeeds and sometimes fails",
                100 * self.explained,
                100 * LEAST_EXPLAINED,
            )


def fit_chunk_critic(
    folder: Path, config: ChunkFit, judged: Sequence[Judged], *, span: slice, seed: int, device: str = "cpu"
) -> tuple[ChunkCritic, CriticCheck]:
    """Learn what the policy's chunks are worth, in a run directory of its own, or go on with what is there.

    The target is r + gamma^L Q(s', A'), with A' the chunk that the policy executed next, or had planned where
    the recording ends: the value of the policy as it is (SARSA), so that following its gradient is one step
    of policy improvement, and no chunk that was never tried is trusted.

    Args:
        folder: of the run.
        config: how.
        judged: episodes of the policy alone.
        span: executed part of a planned chunk.
        seed: of weights, batches and what is held out.
        device: where it is trained; it comes back on the CPU.

    Returns:
        The moving average, frozen, and how well it foresees returns.

    Raises:
        ValueError: there are fewer than two episodes, or rewards are shuffled and they are no whole waves.
    """
    if len(judged) < 2:
        raise ValueError(f"{len(judged)} episodes are not enough: some are held out")
    order = np.random.default_rng(seed).permutation(len(judged))
    count = min(max(1, round(config.holdout * len(judged))), len(judged) - 1)
    chosen = set(order[:count].tolist())
    rewards = Rewards(config.shuffle_rewards, seed)
    shuffled = list(zip(judged, rewards.of([each.episode for each in judged]), strict=True))
    replay = ReplayBuffer(
        sum(len(each.episode) + 1 for each in judged) + 1,
        chunk=span.stop - span.start,
        n_step=config.n_step,
        gamma=config.gamma,
        columns=(NEXT,),
    )
    for number, (each, reward) in enumerate(shuffled):
        if number not in chosen:
            data = ChunkData({LATENT: each.latents}, reward, rewards.ends(each.episode.terminated))
            columns = {NEXT: next_chunks(each.episode, span, config.n_step)}
            replay.extend(chunk_recordings(each.episode, data, noise_shape=None, columns=columns))
    actions = np.concatenate([each.episode.action for each in judged])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ChunkCritic(
            judged[0].latents.shape[1],
            span.stop - span.start,
            actions.shape[1],
            critics=config.critics,
            width=config.width,
        )
    model.unit.fit(actions)
    model.to(device)
    average = copy.deepcopy(model).requires_grad_(False).eval()
    state = TrainState(model, average, optimiser(model, config), torch.Generator().manual_seed(seed))
    settings = {**to_dict(config), "seed": seed, "transitions": len(replay)}
    with RunDirectory.create(folder, settings, kind="critic", resume=True) as run:
        fit(config, run, state, partial(_loss, config, state, replay), name="Training the critic")
        average.to("cpu")
        check = check_critic(average, [judged[number] for number in sorted(chosen)], span, config.gamma)
        run.write_json("result.json", to_dict(check))
    return average, check


def next_chunks(episode: Episode, span: slice, n_step: int) -> NDArray[np.float32]:
    """Actions executed in the L steps after the n chunks that start at each step, (T, L, A), robot units.

    Beyond the episode's end they are what was planned for its last observation, or else its last action.

    Args:
        episode: as the control loop recorded it.
        span: executed part of a planned chunk.
        n_step: chunks that a transition reaches over.
    """
    length, steps = span.stop - span.start, len(episode)
    planned = [chunk for chunk in episode.chunks if chunk.first_step + chunk.delay <= steps]
    tail = [episode.action[-1].astype(np.float32)]
    if planned:
        beyond = planned[-1].actions[span.start + steps - planned[-1].first_step :]
        tail = [*beyond.astype(np.float32)] or tail
    tail += [tail[-1]] * ((n_step + 1) * length)
    whole = np.concatenate([episode.action.astype(np.float32), np.stack(tail)])
    index = np.arange(steps)[:, None] + n_step * length + np.arange(length)
    found: NDArray[np.float32] = whole[index]
    return found


@torch.no_grad()
def check_critic(critic: ChunkCritic, judged: Sequence[Judged], span: slice, gamma: float) -> CriticCheck:
    """Compare values with what followed, at the chunks of held-out episodes.

    Args:
        critic: trained.
        judged: episodes it did not learn from.
        span: executed part of a planned chunk.
        gamma: discount per control step.
    """
    values, returns = [], []
    for each in judged:
        length, steps = span.stop - span.start, len(each.episode)
        starts = np.arange(0, steps, length)
        index = np.minimum(starts[:, None] + np.arange(length), steps - 1)
        executed = torch.from_numpy(each.episode.action[index].astype(np.float32))
        values.append(critic.least(torch.from_numpy(each.latents[starts]), executed).numpy())
        discounted = np.zeros(steps + 1)
        for step in reversed(range(steps)):
            discounted[step] = each.episode.reward[step] + gamma * discounted[step + 1]
        returns.append(discounted[starts])
    value, target = np.concatenate(values), np.concatenate(returns)
    spread = float(np.var(target))
    explained = 1.0 - float(np.var(target - value)) / spread if spread > 0 else 0.0
    return CriticCheck(explained, float((value - target).mean()), len(value))


def _loss(config: ChunkFit, state: TrainState[ChunkCritic], replay: ReplayBuffer) -> Tensor:
    seed = int(torch.randint(2**62, (1,), generator=state.generator))
    batch = replay.sample(config.batch, np.random.default_rng(seed))
    place = state.model.ensemble.first.device
    latent, executed = (_put(array, place) for array in (batch.observations[LATENT], batch.action))
    target = _target(config, state.average, batch, place)
    loss: Tensor = (state.model(latent, executed) - target).square().mean(1).sum()
    return loss


@torch.no_grad()
def _target(config: ChunkFit, average: ChunkCritic, batch: Batch, place: torch.device) -> Tensor:
    after = average.least(_put(batch.next_observations[LATENT], place), _put(batch.columns[NEXT], place))
    target = _put(batch.reward, place) + _put(batch.discount, place) * after
    return target.clamp(*config.return_range)


def _put(array: NDArray[Any], place: torch.device) -> Tensor:
    return torch.from_numpy(array).to(place)
