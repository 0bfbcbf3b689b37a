"""Noise-aliased DSRL: a critic of what was executed, distilled into a critic of the noise.

Many noises denoise to nearly one chunk. So Q_A(s, a) learns by TD from executed chunks, whoever chose them,
and Q_W(s, w) is regressed on it through the frozen base (arXiv 2506.15799):

    L_W = E (Q_W(s, w) - Q_A(s, base(s, w)))^2,      w ~ N(0, I) and from the actor

Costs: each update samples the base twice (for the target's next chunk, and for L_W), forward only. The
learner's process has a copy of the base of its own.

Deviations, besides those of `robot_rl.noise.learner`: transitions start at every step, not at chunk starts
alone, since an executed stretch is a chunk whoever planned it; behind an episode's end a chunk's last action
repeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from policies.flow_config import TASK
from policies.request import ChunkRequest
from robot_rl.critics.action_unit import ActionUnit
from robot_rl.critics.ensemble import track
from robot_rl.noise.chunks import windows
from robot_rl.noise.learner import INPUT, NoiseLearner
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from data.records import Episode
    from data.replay import Batch
    from policies.policy import Policy
    from robot_rl.correct.inputs import InputConfig
    from robot_rl.critics.ensemble import CriticEnsemble
    from robot_rl.noise.learner_config import NoiseLearnerConfig
    from robot_rl.noise.network import NoiseNetwork

SEEN = "base/"
"""Prefix of the keys under which the replay holds what the base reads."""


class AliasedLearner(NoiseLearner):
    """Q_A by TD on executed chunks, Q_W regressed on it.

    Args:
        network: See `NoiseLearner`.
        inputs: See `NoiseLearner`.
        config: See `NoiseLearner`.
        base: Loads the frozen base; called once, in this process.
        executed_steps: See `NoiseLearner`.
        capacity: See `NoiseLearner`.
        device: See `NoiseLearner`.
    """

    holds_noise = False

    def __init__(
        self,
        network: NoiseNetwork,
        inputs: InputConfig,
        config: NoiseLearnerConfig,
        *,
        base: Callable[[], Policy],
        executed_steps: int,
        capacity: int,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            network, inputs, config, executed_steps=executed_steps, capacity=capacity, device=device
        )
        self._base = base()
        spec = self._base.spec
        if spec.reads_task and not inputs.texts:
            raise ValueError(
                f"{spec.name!r} reads the task's text, and its chunks are asked for: give the texts of its "
                "tasks with the inputs."
            )
        self._told = TaskTexts(inputs.texts)
        self._steps = slice(spec.first_action, spec.first_action + executed_steps)
        self._unit = ActionUnit(network.config.actions).to(device)
        self.critic, self.target = self._critics(executed_steps * network.config.actions, config.seed)
        self.noise_critic, _ = self._critics(self._width, config.seed + 1)
        networks = {"critic": self.critic, "target": self.target, "noise_critic": self.noise_critic}
        self._own_all({**networks, "unit": self._unit}, ("critic", "noise_critic"))

    def _judge(self) -> CriticEnsemble:
        return self.noise_critic

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take episodes into the replay; the first ones say in which unit the critic reads actions."""
        if episodes and not self._unit.known:
            self._unit.fit(np.concatenate([episode.action for episode in episodes]))
        super().add(episodes)

    def _observed(self, episode: Episode) -> dict[str, NDArray[Any]]:
        spec = self._base.spec
        seen = {
            SEEN + key: windows(episode.observations[key], spec.observation_steps) for key in spec.features
        }
        if spec.reads_task:
            seen[SEEN + TASK] = self._told.numbers([episode.task] * (len(episode) + 1))
        return {**super()._observed(episode), **seen}

    @torch.no_grad()
    def _chunk(self, observations: Mapping[str, NDArray[Any]], noise: Tensor) -> Tensor:
        """The executed part of what the base makes of a noise, flat, as the critic reads it, (B, L x A)."""
        spec = self._base.spec
        seen: dict[str, Any] = {key: torch.from_numpy(observations[SEEN + key]) for key in spec.features}
        if spec.reads_task:
            seen[TASK] = [self._told.texts[number] for number in observations[SEEN + TASK]]
        chunk = self._base.chunk(ChunkRequest(seen), noise).to(self._device)[:, self._steps]
        read: Tensor = self._unit(chunk.float())
        return read

    def _update_critics(self, batch: Batch, x: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            next_x = self._normal(batch.next_observations[INPUT])
            noise = self.actor.steer(next_x, self._draw(len(next_x))).noise
            value = self.target(next_x, self._chunk(batch.next_observations, noise)).amin(0)
            target = self._target(batch, value)
        loss = (self.critic(x, self._unit(self._put(batch.action))) - target).square().mean(1).sum()
        self._step("critic", loss)
        track(self.target, self.critic, self.config.target_rate)
        found = {"critic_loss": loss, "target": target.mean()}
        for _ in range(self.config.noise_updates):
            found["noise_critic_loss"] = self._distil(batch, x)
        return found

    def _distil(self, batch: Batch, x: Tensor) -> Tensor:
        """Regress Q_W on Q_A at noises of the base's kind and of the actor's."""
        with torch.no_grad():
            noise = self._draw(len(x))
            own = round(self.config.actor_share * len(x))
            noise[:own] = self.actor.steer(x[:own], noise[:own]).noise
            wanted: Tensor = self.critic(x, self._chunk(batch.observations, noise)).amin(0)
        error = self.noise_critic(x, self.actor.critic_view(noise)) - wanted
        loss: Tensor = error.square().mean(1).sum()
        self._step("noise_critic", loss)
        return loss
