"""What a training run needs to go on exactly where it was: weights, average, optimiser, random state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from data.manifest import atomic_write_bytes
from policies.checkpoint import read_tensors
from robot_rl.learn.state_tensors import below, load_optimiser, optimiser_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

_FILE = "trainer.safetensors"


@dataclass(eq=False)
class TrainState[Model: nn.Module]:
    """The moving parts of a training run.

    Attributes:
        model: being trained.
        average: exponential moving average of it, which is what training returns.
        optimizer: of `model`.
        generator: source of batches, noise and noise levels.
        step: updates done.
    """

    model: Model
    average: Model
    optimizer: torch.optim.AdamW
    generator: torch.Generator
    step: int = 0

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Move the average towards the model; faster during the first updates.

        Args:
            decay: weight of the old average, in [0, 1).
        """
        weight = 1 - min(decay, (1 + self.step) / (10 + self.step))
        for old, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
            old.lerp_(new, weight)

    def save(self, folder: Path) -> None:
        """Write the state into a folder."""
        tensors = {"generator": self.generator.get_state(), "step": torch.tensor(self.step)}
        tensors |= {f"policy.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        tensors |= optimiser_tensors(self.optimizer, "optimizer.")
        plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        atomic_write_bytes(folder / _FILE, safetensors.torch.save(plain))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: if it is damaged.
            RuntimeError: if it was written by a training of another policy.
        """
        tensors = read_tensors(folder / _FILE)
        self.generator.set_state(tensors.pop("generator"))
        self.step = int(tensors.pop("step"))
        self.model.load_state_dict(below(tensors, "policy."))
        self.average.load_state_dict(below(tensors, "average."))
        load_optimiser(self.optimizer, tensors, "optimizer.")
