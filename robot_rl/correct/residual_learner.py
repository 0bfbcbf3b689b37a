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
from robot_rl.learn.learner import Learner
from robot_rl.learn.state_tensors import (
    below,
    load_optimiser,
    optimiser_tensors,
    pack_generator,
    unpack_generator,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        if self.shuffle_rewards < 0 or self.shuffle_rewards == 1:
            raise ValueError(
                f"shuffle_rewards is {self.shuffle_rewards}; give the episodes of a wave, 2 or more, or 0."
            )


class ByWholeNumbers:
    """Draws uniformly by whole random numbers, which the published studies' outcomes depend on."""

    def draw(
        self, replay: ReplayBuffer, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], None]:
        """Numbers of `count` transitions."""
        return replay.first + rng.integers(0, len(replay), count), None


class ResidualLearner(Learner):
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
        self.config = config
        self._executed_steps = executed_steps
        self._rng = np.random.default_rng(config.seed)
        self._generator = torch.Generator(device).manual_seed(config.seed)
        # Drawn from by `add` alone: a resumed learner is given all episodes anew and draws the same again.
        self._shuffle_rng = np.random.default_rng([config.seed, 1])
        self.actor = copy.deepcopy(network).to(device)
        self._average = copy.deepcopy(self.actor).requires_grad_(False)
        inputs, actions = len(network.mean), len(network.scale)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.critic = CriticEnsemble(inputs, actions, config.critics, config.width).to(device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        networks = self.actor, self._average, self.critic, self.target
        self._networks = dict(zip(("actor", "average", "critic", "target"), networks, strict=True))
        self._log_temperature = torch.tensor(np.log(config.temperature), dtype=torch.float32, device=device)
        self._log_temperature.requires_grad_(True)
        self._optimisers = self._make_optimisers()
        self._free = float((network.scale > 0).sum())
        self._replay = ReplayBuffer(capacity, n_step=config.n_step, gamma=config.gamma)
        self._updates = 0

    def _make_optimisers(self) -> dict[str, torch.optim.Adam]:
        learned: dict[str, list[torch.Tensor]] = {
            "actor": list(self.actor.parameters()),
            "critic": list(self.critic.parameters()),
            "temperature": [self._log_temperature],
        }
        return {
            name: torch.optim.Adam(parameters, self.config.learning_rate, fused=True)
            for name, parameters in learned.items()
        }

    def __len__(self) -> int:
        """Transitions in the replay."""
        return len(self._replay)

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take episodes into the replay.

        Raises:
            ValueError: Rewards are shuffled, and the episodes are no whole number of waves.
        """
        for episode, reward in zip(episodes, self._rewards(episodes), strict=True):
            ended = bool(episode.terminated[-1]) and not self.config.shuffle_rewards
            base = base_actions(episode, self._executed_steps, bootstrap=not ended)
            ends = np.zeros(len(episode), bool)
            ends[-1] = ended
            inputs = {"x": self.actor.config.inputs.recorded(episode), "base": base}
            taken = Recording(
                observations=inputs, action=episode.action, reward=reward, ends=ends, id=episode.id
            )
            self._replay.extend([taken])

    def _rewards(self, episodes: Sequence[Episode]) -> list[NDArray[np.float64]]:
        """Rewards of each episode, (T,): as they were, or shuffled over all steps of each wave."""
        rewards = [np.array(episode.reward) for episode in episodes]
        size = self.config.shuffle_rewards
        if not size:
            return rewards
        if len(rewards) % size:
            raise ValueError(
                f"{len(rewards)} episodes are no whole number of waves of {size}; "
                "set shuffle_rewards to the rows of a wave."
            )
        shuffled: list[NDArray[np.float64]] = []
        for first in range(0, len(rewards), size):
            wave = rewards[first : first + size]
            mixed = self._shuffle_rng.permutation(np.concatenate(wave))
            shuffled += np.split(mixed, np.cumsum([len(reward) for reward in wave])[:-1])
        return shuffled

    def update(self, count: int) -> dict[str, float]:
        """Do `count` updates; mean diagnostics."""
        total: dict[str, Tensor] = {}
        for _ in range(count):
            batch = self._tensors(self._replay.sample(self.config.batch, self._rng, ByWholeNumbers()))
            found = self._update_critic(batch)
            self._updates += 1
            if self._updates % self.config.actor_every == 0:
                found |= self._update_actor(batch[0], batch[1])
                track(self._average, self.actor, self.config.average_rate)
            track(self.target, self.critic, self.config.target_rate)
            for key, value in found.items():
                total[key] = total.get(key, torch.zeros(())) + value.detach()
        return {key: float(value) / count for key, value in total.items()}

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
        temperature = self._log_temperature.exp()
        value = self.critic(x, self._corrected(base, residual)).mean(0)
        loss = (temperature.detach() * log_prob - value).mean()  # SAC eq. 9
        loss = loss + self.config.residual_penalty * residual.square().sum(-1).mean()
        self._step("actor", loss)
        self.critic.requires_grad_(True)
        gap = log_prob.detach().mean() + self.config.target_entropy * self._free
        self._step("temperature", -self._log_temperature * gap)  # SAC eq. 18, by the logarithm
        return {"entropy": -log_prob.mean(), "temperature": temperature}

    def _step(self, name: str, loss: Tensor) -> None:
        optimiser = self._optimisers[name]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        optimiser.step()

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the averaged actor's tensors."""
        return {key: value.detach().clone() for key, value in self._average.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        """Networks, optimisers, random generators and the count of updates, by name."""
        state = {"log_temperature": self._log_temperature.detach().clone()}
        for name, module in self._networks.items():
            state |= {f"{name}.{key}": value.detach().clone() for key, value in module.state_dict().items()}
        for name, optimiser in self._optimisers.items():
            state |= optimiser_tensors(optimiser, f"optimiser.{name}.")
        state["generator"] = self._generator.get_state()
        state["numpy_generator"] = pack_generator(self._rng)
        state["updates"] = torch.tensor(self._updates)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved state; see `Learner.load_state`."""
        own = self.state()
        missing = {key for key in own if not key.startswith("optimiser.")} - state.keys()
        if missing:
            raise ValueError(
                f"The learner's state lacks {sorted(missing)[:5]}; it belongs to another configuration."
            )
        for name, module in self._networks.items():
            module.load_state_dict(below(state, f"{name}."))
        for name, optimiser in self._optimisers.items():
            load_optimiser(optimiser, state, f"optimiser.{name}.")
        with torch.no_grad():
            self._log_temperature.copy_(state["log_temperature"])
        self._generator.set_state(state["generator"])
        unpack_generator(self._rng, state["numpy_generator"])
        self._updates = int(state["updates"])
