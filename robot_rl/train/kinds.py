"""What the trainer needs to know of one kind of policy; everything else of behaviour cloning is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import nn

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from policies.policy import ChunkPolicy
    from policies.request import ActionBatch
    from robot_rl.train.demonstrations import Demonstrations
    from robot_rl.train.windows import TensorWindows


@dataclass(frozen=True)
class WindowShape:
    """What of the data a policy learns from.

    Attributes:
        inputs: feature keys it reads; empty: all that the data have.
        image_size: (height, width) images are averaged down to while they are read.
        observation_steps: see `policies.policy.PolicySpec`.
        horizon: see there.
        first_action: see there.
    """

    inputs: tuple[str, ...]
    image_size: tuple[int, int]
    observation_steps: int
    horizon: int
    first_action: int


class Cloning[Model: nn.Module](Protocol):
    """One kind of policy that behaviour cloning trains."""

    @property
    def shape(self) -> WindowShape:
        """What it learns from."""
        ...

    def build(self, demos: Demonstrations, windows: TensorWindows) -> Model:
        """Return the policy to train, on the CPU, normalised by the training windows only."""
        ...

    def copy(self, model: Model) -> Model:
        """Return a policy of its own with the same weights, on the same device."""
        ...

    def policy(self, model: Model) -> ChunkPolicy:
        """Return the policy that a model is."""
        ...

    def loss(self, model: Model, batch: ActionBatch, generator: torch.Generator) -> Tensor:
        """Return the scalar loss on a batch; whatever is random comes from the generator (on the CPU)."""
        ...

    def save(self, model: Model, run: Path) -> None:
        """Write the trained policy into the run's folder."""
        ...
