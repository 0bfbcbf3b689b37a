"""Hyper-parameters of DSRL's learners, sized for a CPU; the paper's values stand beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_rl.learn.shuffling import check_shuffle

LEAST = 1e-6
"""What must be positive is at least this."""


@dataclass(frozen=True)
class NoiseLearnerConfig:
    """Hyper-parameters of the updates.

    Attributes:
        critics: K networks (paper 2); their minimum is used. Few decisions with many numbers each are easily
            overestimated, and more critics are more careful.
        width: Units of a hidden layer of actor and critics, which have two (paper 3 of 2048; 128 for
            Transport).
        batch: Transitions per update (paper 256).
        n_step: Chunks whose rewards are summed before bootstrapping (paper 1).
        gamma: Discount per control step, so a chunk's is gamma to its executed steps (paper 0.99 per chunk,
            Square 0.999).
        learning_rate: Of actor, critics and temperature (paper 3e-4).
        target_rate: Polyak share per update (paper 0.005).
        actor_every: Critic updates per actor update (paper 1).
        average_rate: Share by which the average of the actor's weights, which acts, follows each of its
            updates; 1 acts with the newest weights, as the paper does.
        mean_penalty: What the actor pays for the mean square of its means, in units of return where all are
            at the bound (paper 0). Numbers that change nothing for the critic then stay the base's own.
        temperature: Weight of the entropy at the start; tuned from there.
        target_entropy: Entropy that the temperature is tuned to, nats per chosen number relative to the
            base's own noise: 0 is as much chance as the base has. The paper's target of 0 in units of the box
            is -1.0 here (c = 1.5).
        entropy_in_target: Whether the entropy is part of the TD target, as in SAC (sac only). Without, the
            critics' values are returns, as `return_range` wants.
        return_range: Least and greatest discounted return of the task's reward; targets stay inside.
        noise_updates: Updates of Q_W per update of Q_A (na only; paper 10).
        actor_share: Share of the noises on which Q_W is regressed that the actor draws; the others are
            standard normal (na only).
        shuffle_rewards: Negative control: rewards of this many successive episodes (a wave) are shuffled over
            all their steps; see `robot_rl.learn.shuffling`. 0 leaves them alone.
        seed: Of initial weights and sampling.
    """

    critics: int = 4
    width: int = 256
    batch: int = 256
    n_step: int = 3
    gamma: float = 0.99
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    actor_every: int = 2
    average_rate: float = 0.01
    mean_penalty: float = 0.03
    temperature: float = 0.002
    target_entropy: float = -1.0
    entropy_in_target: bool = False
    return_range: tuple[float, float] = (0.0, 1.0)
    noise_updates: int = 1
    actor_share: float = 0.5
    shuffle_rewards: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges that matter."""
        for names, low, high in (
            (("critics", "width", "batch", "n_step", "actor_every", "noise_updates"), 1, math.inf),
            (("target_rate", "average_rate", "learning_rate", "temperature"), LEAST, 1),
            (("gamma",), LEAST, 1 - LEAST),
            (("actor_share", "mean_penalty"), 0, 1),
        ):
            for name in names:
                if not low <= getattr(self, name) <= high:
                    raise ValueError(f"{name} is {getattr(self, name)}; it must lie in {low:g} .. {high:g}.")
        if not self.return_range[0] < self.return_range[1]:
            raise ValueError(
                f"return_range is {self.return_range}; give the least return, then the greatest."
            )
        check_shuffle(self.shuffle_rewards)
