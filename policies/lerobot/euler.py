"""What LeRobot's flow-matching policies share: Euler steps of equal width, and padded actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from policies.checkpoint import CheckpointError
from policies.context import TensorContext
from policies.lerobot.base import LeRobotChunkPolicy
from policies.lerobot.describe import Layout
from policies.policy import Evaluation, Supports

if TYPE_CHECKING:
    from jaxtyping import Float

    from policies.context import Context
    from policies.request import Condition


class EulerPolicy(LeRobotChunkPolicy):
    """A flow-matching policy of LeRobot whose noise is wider than its actions.

    The padded entries of x follow the network alone: what a hook does to them is undone after each step.
    """

    @classmethod
    def layout(cls, config: Any) -> Layout:  # noqa: ANN401 - a configuration of LeRobot
        """Return how the policy cuts time: one observation, actions from now on."""
        width = int(config.action_feature.shape[0])
        if width > config.max_action_dim:
            raise CheckpointError(
                f"the actions have {width} dimensions, but max_action_dim is {config.max_action_dim}"
            )
        return Layout(1, config.chunk_size, config.n_action_steps, 0, config.max_action_dim)

    @classmethod
    def supports(cls, config: Any) -> Supports:  # noqa: ANN401 - a configuration of LeRobot
        """Return what the policy offers: everything but conditions and a sigma per position."""
        del config
        return Supports(noise=True, velocity=True, gradients=True)

    @property
    def steps(self) -> int:
        """Denoising steps that the checkpoint takes."""
        raise NotImplementedError

    @property
    def valid_positions(self) -> int:
        """Positions of the chunk that mean something; those after them are padding."""
        return self._spec.horizon

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: the policy is frozen, and neither dropout nor checkpointing is wanted."""
        del mode
        return super().train(mode=False)

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return LeRobot's times, to the bit: 1 - i / steps computed in double, then rounded.

        Args:
            steps: number of steps; None: as the checkpoint says.
        """
        count = self.steps if steps is None else steps
        if count < 1:
            raise ValueError(f"steps is {count}; at least one denoising step is needed")
        width = -1.0 / count
        levels = [1.0 + index * width for index in range(count)]
        return torch.tensor([*levels, 0.0], dtype=torch.float32, device=self.device)

    def native_step(
        self,
        index: int,
        x: Float[Tensor, "B H Z"],
        velocity: Float[Tensor, "B H Z"],
        *,
        sigmas: Float[Tensor, " N"],
        evaluation: Evaluation,
        noise: Float[Tensor, "B H Z"] | None = None,
    ) -> Tensor:
        """Take one Euler step of constant width, the padded entries as the network alone would."""
        del index, noise
        x, velocity = self.keep_padding(x, evaluation.x), self.keep_padding(velocity, evaluation.velocity)
        return x + (-1.0 / (len(sigmas) - 1)) * velocity

    def check_condition(self, condition: Condition) -> None:
        """Refuse a condition; the policy's text is part of the observation."""
        if condition is not None:
            raise ValueError(
                f"policy {self._spec.name!r} takes no condition; its text is the observation's 'task'"
            )

    def check_rows(self, x: Tensor, sigma: Tensor, context: Context) -> TensorContext:
        """Return the context; refuse a sigma that is not one level per row, and rows of another context."""
        assert isinstance(context, TensorContext)
        rows = context.batch_size
        if tuple(sigma.shape) != (rows,) or x.shape[0] != rows:
            raise ValueError(
                f"x has shape {tuple(x.shape)} and sigma {tuple(sigma.shape)}; policy {self._spec.name!r} "
                f"expects {(rows, *self._spec.noise_shape)} and one level per row, ({rows},)"
            )
        return context

    def keep_padding(self, changed: Tensor, own: Tensor) -> Tensor:
        """Return what the hooks made of x or the velocity, its padded entries put back.

        The network reads the padded entries too, so a hook that moved them could turn the real actions in a
        way that no training ever showed the network.

        Args:
            changed: (B, H, Z) after the hooks.
            own: (B, H, Z) before them; where `changed` is this very object it is returned as it is.
        """
        width, positions = self._spec.action_size, self.valid_positions
        if changed is own or (positions, width) == self._spec.noise_shape:
            return changed
        kept = own.clone()
        kept[:, :positions, :width] = changed[:, :positions, :width]
        return kept


def outside_inference(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that may enter a graph later, clones of those made under inference_mode."""
    with torch.inference_mode(mode=False):  # a clone made inside would be no better
        return {name: value.clone() if value.is_inference() else value for name, value in tensors.items()}
