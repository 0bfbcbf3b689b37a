"""Off-policy learning of the residual: soft actor-critic on the executed action.

From RLPD (arXiv 2302.02948): layer-normed critic ensemble, minimum over a random subset, no entropy term in
the target. From ResFiT (arXiv 2509.19301): critics score a_b + residual, n-step targets, next base action as
computed when collected. From SAC (arXiv 1812.05905): actor and temperature.

Deviations: at most one update per environment step instead of many; two critics unless more are asked for, so
that the subset is all of them; the actor moves every second update; targets limited to the range that the
task's reward can reach; replay of rollouts only, no demonstrations; an average of the actor's weights acts;
corrections cost a little, since a sparse reward alone leaves them jittering where they do not matter.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from data.replay import Recording, ReplayBuffer
from robot_rl.correct.inputs import base_actions
from robot_rl.critics.ensemble import CriticEnsemble, track
from robot_rl.learn.off_policy import OffPolicyLearner
from robot_rl.learn.shuffling import Rewards, check_shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.records import Episode
    from data.replay import Batch
    from robot_rl.correct.residual import ResidualNetwork


@dataclass(frozen=True)
class ResidualLearnerConfig:
    """Hyper-parameters of the residual's learner.

    Attributes:
        critics: K networks.
        subset: Networks whose minimum makes the target.
        width: Units of a critic's hidden layer.
        batch: Transitions per update.
        n_step: Rewards summed before bootstrapping.
        gamma: Discount per control step.
        learning_rate: Of actor, critics and temperature.
        target_rate: Polyak share per update.
        temperature: Weight of the entropy at the start.
        target_entropy: Entropy that the temperature is tuned to, nats per corrected dimension.
        actor_every: Critic updates per actor update.
        average_rate: Share by which the average of the actor's weights, which acts, follows each of its
            updates; 1 acts with the newest weights.
        residual_penalty: What the actor pays for the mean square of a full correction, per dimension, in
            units of return. Corrections that change nothing for the critic then fade instead of jittering.
        return_range: Least and greatest discounted return of the task's reward.
        shuffle_rewards: Negative control: the rewards of this many successive episodes (a wave) are shuffled
            over all their steps, and every episode is learned from as if a time limit had cut it, since that
            only success ends a task early tells the same as its reward; 0 leaves them alone.
        seed: Of initial weights and sampling.
    """

    critics: int = 2
    subset: int = 2
    width: int = 128
    batch: int = 256
    n_step: int = 3
    gamma: float = 0.98
    learning_rate: float = 5e-4
    target_rate: float = 0.01
    temperature: float = 0.01
    target_entropy: float = -1.0
    actor_every: int = 2
    average_rate: float = 0.01
    residual_penalty: float = 0.01
    return_range: tuple[float, float] = (0.0, 1.0)
    shuffle_rewards: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges that matter."""
        if not 1 <= self.subset <= self.critics:
            raise ValueError(f"subset is {self.subset}; it must lie in 1 .. critics = {self.critics}.")
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma is {self.gamma}; it must lie between 0 and 1.")
        if not 0 < self.average_rate <= 1 or not self.residual_penalty >= 0:
            raise ValueError(
                f"average_rate is {self.average_rate}, residual_penalty {self.residual_penalty}; "
                "the first must lie in (0, 1], the second be at least 0."
            )
        for name in ("n_step", "batch", "actor_every", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("learning_rate", "temperature", "target_rate"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        if not self.return_range[0] < self.return_range[1]:
            raise ValueError(
                f"return_range is {self.return_range}; give the least return, then the greatest."
            )
        check_shuffle(self.shuffle_rewards)


class ByWholeNumbers:
    """Draws uniformly by whole random numbers, which the published studies' outcomes depend on."""

    def draw(
        self, replay: ReplayBuffer, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], None]:
        """Numbers of `count` transitions."""
        return replay.first + rng.integers(0, len(replay), count), None


class ResidualLearner(OffPolicyLearner):
    """Owns networks, optimisers and replay.

    Args:
        network: The residual network to train; copied.
        config: Hyper-parameters.
        executed_steps: Steps of a base chunk that are executed before the next.
        capacity: Rows of the replay.
        device: Where the networks live.
    """

    def __init__(
        self,
        network: ResidualNetwork,
        config: ResidualLearnerConfig,
        *,
        executed_steps: int,
        capacity: int,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            ReplayBuffer(capacity, n_step=config.n_step, gamma=config.gamma),
            seed=config.seed,
            learning_rate=config.learning_rate,
            temperature=config.temperature,
            device=device,
        )
        self.config = config
        self._executed_steps = executed_steps
        self._rewards = Rewards(config.shuffle_rewards, config.seed)
        self.actor = copy.deepcopy(network).to(device)
        self._average = copy.deepcopy(self.actor).requires_grad_(False)
        inputs, actions = len(network.mean), len(network.scale)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.critic = CriticEnsemble(inputs, actions, config.critics, config.width).to(device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        networks = self.actor, self._average, self.critic, self.target
        names = "actor", "average", "critic", "target"
        self._own(dict(zip(names, networks, strict=True)), learned=("actor", "critic"))
        self._free = float((network.scale > 0).sum())

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take episodes into the replay.

        Raises:
            ValueError: Rewards are shuffled, and the episodes are no whole number of waves.
        """
        for episode, reward in zip(episodes, self._rewards.of(episodes), strict=True):
            ends = np.zeros(len(episode), bool)
            ends[-1] = self._rewards.ends(episode.terminated)[-1]
            base = base_actions(episode, self._executed_steps, bootstrap=not ends[-1])
            inputs = {"x": self.actor.config.inputs.recorded(episode), "base": base}
            taken = Recording(
                observations=inputs, action=episode.action, reward=reward, ends=ends, id=episode.id
            )
            self._replay.extend([taken])

    def _update(self) -> dict[str, Tensor]:
        batch = self._tensors(self._replay.sample(self.config.batch, self._rng, ByWholeNumbers()))
        found = self._update_critic(batch)
        if self._updates % self.config.actor_every == 0:
            found |= self._update_actor(batch[0], batch[1])
            track(self._average, self.actor, self.config.average_rate)
        track(self.target, self.critic, self.config.target_rate)
        return found

    def _tensors(self, batch: Batch) -> tuple[Tensor, ...]:
        """Normalised inputs and actions in action units."""
        device, unit = self.actor.scale.device, self.actor.action_unit

        def put(value: NDArray[np.float32]) -> Tensor:
            return torch.from_numpy(value).to(device)

        return (
            self.actor.normalise(put(batch.observations["x"])),
            put(batch.observations["base"]) / unit,
            put(batch.action) / unit,
            self.actor.normalise(put(batch.next_observations["x"])),
            put(batch.next_observations["base"]) / unit,
            put(batch.reward),
            put(batch.discount),
        )

    def _draw(self, x: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """A correction in (-1, 1) drawn by the actor, and its log-density."""
        noise = torch.randn(base.shape, generator=self._generator, device=base.device)
        return self.actor.sample(x, base, noise)

    def _corrected(self, base: Tensor, residual: Tensor) -> Tensor:
        """Corrected action in action units."""
        return base + residual * self.actor.scale / self.actor.action_unit

    def _update_critic(self, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        x, _, action, next_x, next_base, reward, discount = batch
        with torch.no_grad():
            next_action = self._corrected(next_base, self._draw(next_x, next_base)[0])
            chosen = torch.from_numpy(self._rng.permutation(self.config.critics)[: self.config.subset])
            value = self.target(next_x, next_action)[chosen].amin(0)
            target = (reward + discount * value).clamp(*self.config.return_range)
        error = self.critic(x, action) - target
        loss = error.square().mean(1).sum()
        self._step("critic", loss)
        return {"critic_loss": loss, "target": target.mean()}

    def _update_actor(self, x: Tensor, base: Tensor) -> dict[str, Tensor]:
        self.critic.requires_grad_(False)
        residual, log_prob = self._draw(x, base)
        temperature = self._temperature
        value = self.critic(x, self._corrected(base, residual)).mean(0)
        loss = (temperature.detach() * log_prob - value).mean()  # SAC eq. 9
        loss = loss + self.config.residual_penalty * residual.square().sum(-1).mean()
        self._step("actor", loss)
        self.critic.requires_grad_(True)
        gap = log_prob.detach().mean() + self.config.target_entropy * self._free
        self._tune_temperature(gap)
        return {"entropy": -log_prob.mean(), "temperature": temperature}

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the averaged actor's tensors."""
        return {key: value.detach().clone() for key, value in self._average.state_dict().items()}
