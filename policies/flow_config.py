"""The configuration of the native flow policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TASK = "task"
"""Name of the input that holds the task text."""


@dataclass(frozen=True)
class FlowConfig:
    """What a flow policy reads and how large it is.

    Attributes:
        inputs: feature keys to read; "task" adds the text. Images are recognised by their feature. Empty:
            to be filled in from the data.
        horizon: H, actions per chunk.
        executed_steps: control steps until the next chunk.
        observation_steps: newest observations read, oldest first.
        first_action: index in the chunk of the action for the newest observation.
        hidden: neurons per layer of the velocity network.
        layers: number of its hidden layers.
        frequencies: sine/cosine pairs that encode the noise level.
        steps: denoising steps.
        image_size: (height, width) in pixels that images are averaged down to.
        image_features: length of one camera's code.
        text_vocabulary: hash buckets of the text encoder.
        text_features: length of the text's code.
        conditions: names of conditions, such as "positive" and "negative"; each policy call may give one.
        condition_dropout: share of training rows whose condition is hidden; for classifier-free guidance.
        relative_to: key of a vector observation of A values from which actions are measured (the newest
            one); None: actions are used as they are.
        prediction: what the network's last layer says: the "velocity", or the "clean" chunk a, from which the
            velocity is (x - a) / max(sigma, 0.1). Where demonstrations are nearly deterministic the second
            needs several times fewer updates, since the first must learn to divide by sigma.
        state_normalization: of vector inputs.
        action_normalization: of actions.
        sigma_sampling: law of the noise level in training: "uniform" on [0, 1], or "beta": Beta(1.5, 1),
            which trains more at high noise (Black et al. 2024, pi0, appendix B).
    """

    inputs: tuple[str, ...] = ()
    horizon: int = 16
    executed_steps: int = 8
    observation_steps: int = 1
    first_action: int = 0
    hidden: int = 256
    layers: int = 3
    frequencies: int = 16
    steps: int = 10
    image_size: tuple[int, int] = (64, 64)
    image_features: int = 32
    text_vocabulary: int = 512
    text_features: int = 32
    conditions: tuple[str, ...] = ()
    condition_dropout: float = 0.0
    relative_to: str | None = None
    prediction: Literal["velocity", "clean"] = "velocity"
    state_normalization: Literal["mean_std", "min_max", "quantile"] = "mean_std"
    action_normalization: Literal["mean_std", "min_max", "quantile"] = "min_max"
    sigma_sampling: Literal["uniform", "beta"] = "uniform"

    def __post_init__(self) -> None:
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError(f"inputs is {self.inputs}; name each feature key once")
        sizes = ("horizon", "executed_steps", "observation_steps", "hidden", "layers", "frequencies", "steps")
        for name in (*sizes, "image_features", "text_vocabulary", "text_features"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if len(self.image_size) != 2 or min(self.image_size) < 8:
            raise ValueError(f"image_size is {self.image_size}; give (height, width), 8 pixels or more")
        if not 0.0 <= self.condition_dropout < 1.0:
            raise ValueError(f"condition_dropout is {self.condition_dropout}; it must lie in [0, 1)")
        if self.condition_dropout and not self.conditions:
            raise ValueError("condition_dropout without conditions has no effect; name the conditions")
        if self.relative_to is not None and self.inputs and self.relative_to not in self.inputs:
            raise ValueError(f"relative_to is {self.relative_to!r}, which is not among inputs {self.inputs}")
