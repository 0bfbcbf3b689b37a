"""Soft actor-critic over the initial noise (DSRL-SAC): a decision is a chunk, its action the noise.

Wagenmaker et al. 2025, arXiv 2506.15799, with SAC of arXiv 1812.05905. The base is a black box: nothing here
calls it.

Deviations: critics are layer-normed with two hidden layers of ReLU (RLPD, arXiv 2302.02948) instead of three
of tanh; targets are limited to the range that the task's reward can reach; the actor moves every second
update and an average of its weights acts; a shift of the noise costs a little; entropy is measured relative
to the base's own noise and stays out of the target unless asked for.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch

from data.replay import ReplayBuffer
from robot_rl.critics.ensemble import CriticEnsemble, track
from robot_rl.learn.off_policy import OffPolicyLearner
from robot_rl.learn.shuffling import Rewards
from robot_rl.noise.chunks import NOISE, ChunkData, chunk_recordings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from data.records import Episode
    from data.replay import Batch
    from robot_rl.correct.inputs import InputConfig
    from robot_rl.noise.learner_config import NoiseLearnerConfig
    from robot_rl.noise.network import NoiseNetwork

INPUT = "x"
"""Key of the actor's input vector in the replay."""


class NoiseLearner(OffPolicyLearner):
    """What both variants share: the actor, its update and the chunk replay.

    Args:
        network: The noise network to train; copied.
        inputs: What it reads.
        config: Hyper-parameters.
        executed_steps: L, steps of a chunk that are executed.
        capacity: Rows of the replay.
        device: Where the networks live.
    """

    holds_noise = True

    def __init__(
        self,
        network: NoiseNetwork,
        inputs: InputConfig,
        config: NoiseLearnerConfig,
        *,
        executed_steps: int,
        capacity: int,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            ReplayBuffer(capacity, chunk=executed_steps, n_step=config.n_step, gamma=config.gamma),
            seed=config.seed,
            learning_rate=config.learning_rate,
            temperature=config.temperature,
            device=device,
        )
        self.config, self._inputs, self._device = config, inputs, device
        self._rewards = Rewards(config.shuffle_rewards, config.seed)
        self.actor = copy.deepcopy(network).to(device)
        self._average = copy.deepcopy(self.actor).requires_grad_(False)
        self._shape = network.config.horizon, network.config.width
        self._width = network.freedom

    def _critics(self, actions: int, seed: int) -> tuple[CriticEnsemble, CriticEnsemble]:
        """An ensemble that reads `actions` numbers besides the observation, and its target."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = CriticEnsemble(len(self.actor.mean), actions, self.config.critics, self.config.width)
        critic = made.to(self._device)
        return critic, copy.deepcopy(critic).requires_grad_(False)

    def _own_all(self, networks: Mapping[str, nn.Module], learned: tuple[str, ...]) -> None:
        self._own({"actor": self.actor, "average": self._average, **networks}, ("actor", *learned))

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take episodes into the replay.

        Raises:
            ValueError: Rewards are shuffled, and the episodes are no whole number of waves; or a chunk has no
                noise of the base's shape.
        """
        shape = self._shape if self.holds_noise else None
        for episode, reward in zip(episodes, self._rewards.of(episodes), strict=True):
            data = ChunkData(self._observed(episode), reward, self._rewards.ends(episode.terminated))
            self._replay.extend(chunk_recordings(episode, data, noise_shape=shape))

    def _observed(self, episode: Episode) -> dict[str, NDArray[Any]]:
        """What the replay holds of the observations, by key, each (T + 1, ...)."""
        return {INPUT: self._inputs.recorded(episode)}

    @abstractmethod
    def _update_critics(self, batch: Batch, x: Tensor) -> dict[str, Tensor]:
        """Update what the actor is judged by; `x` are the batch's normalised inputs."""

    @abstractmethod
    def _judge(self) -> CriticEnsemble:
        """The critic Q(s, w) that the actor maximises."""

    def _update(self) -> dict[str, Tensor]:
        batch = self._replay.sample(self.config.batch, self._rng)
        x = self._normal(batch.observations[INPUT])
        found = self._update_critics(batch, x)
        if self._updates % self.config.actor_every == 0:
            found |= self._update_actor(x)
            track(self._average, self.actor, self.config.average_rate)
        return found

    def _update_actor(self, x: Tensor) -> dict[str, Tensor]:
        judge = self._judge()
        judge.requires_grad_(False)
        chosen = self.actor.steer(x, self._draw(len(x)))
        value = judge(x, self.actor.critic_view(chosen.noise)).amin(0)
        temperature = self._temperature
        loss = (temperature.detach() * chosen.log_prob - value).mean()  # SAC eq. 9
        self._step("actor", loss + self.config.mean_penalty * chosen.mean.square().mean())
        judge.requires_grad_(True)
        entropy = -chosen.log_prob.detach().mean()
        self._tune_temperature(self.config.target_entropy * self.actor.freedom - entropy)
        return {"entropy": entropy / self.actor.freedom, "temperature": temperature, "value": value.mean()}

    def _draw(self, rows: int) -> Tensor:
        """Standard normal noise, (B, H, Z)."""
        return torch.randn((rows, *self._shape), generator=self._generator, device=self._device)

    def _normal(self, rows: NDArray[np.float32]) -> Tensor:
        return self.actor.normalise(self._put(rows))

    def _put(self, rows: NDArray[Any]) -> Tensor:
        return torch.from_numpy(rows).to(self._device)

    def _target(self, batch: Batch, value: Tensor) -> Tensor:
        """TD target of a chunk: its discounted rewards, and the value where it led, by gamma^steps."""
        low, high = self.config.return_range
        # The value too: where it overshoots, a limit on the sum alone would undo the discount.
        target = self._put(batch.reward) + self._put(batch.discount) * value.clamp(low, high)
        return target.clamp(low, high)

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the averaged actor's tensors."""
        return {key: value.detach().clone() for key, value in self._average.state_dict().items()}


class SacLearner(NoiseLearner):
    """Q(s, w) by TD on the noise that was denoised.

    Args:
        network: See `NoiseLearner`.
        inputs: See `NoiseLearner`.
        config: See `NoiseLearner`.
        executed_steps: See `NoiseLearner`.
        capacity: See `NoiseLearner`.
        device: See `NoiseLearner`.
    """

    def __init__(
        self,
        network: NoiseNetwork,
        inputs: InputConfig,
        config: NoiseLearnerConfig,
        *,
        executed_steps: int,
        capacity: int,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            network, inputs, config, executed_steps=executed_steps, capacity=capacity, device=device
        )
        self.critic, self.target = self._critics(self._width, config.seed)
        self._own_all({"critic": self.critic, "target": self.target}, ("critic",))

    def _judge(self) -> CriticEnsemble:
        return self.critic

    def _update_critics(self, batch: Batch, x: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            next_x = self._normal(batch.next_observations[INPUT])
            chosen = self.actor.steer(next_x, self._draw(len(next_x)))
            value = self.target(next_x, self.actor.critic_view(chosen.noise)).amin(0)
            if self.config.entropy_in_target:
                value = value - self._temperature * chosen.log_prob
            target = self._target(batch, value)
        denoised = self.actor.critic_view(self._put(batch.columns[NOISE]))
        loss = (self.critic(x, denoised) - target).square().mean(1).sum()
        self._step("critic", loss)
        track(self.target, self.critic, self.config.target_rate)
        return {"critic_loss": loss, "target": target.mean()}
