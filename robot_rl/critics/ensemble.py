"""K layer-normed critics evaluated together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

if TYPE_CHECKING:
    from jaxtyping import Float


class CriticEnsemble(nn.Module):
    """K networks Q(x, a) with two hidden layers; layer norm bounds extrapolation (RLPD, arXiv 2302.02948).

    Args:
        inputs: D, width of the input vector.
        actions: A.
        count: K.
        width: Units of a hidden layer.
    """

    def __init__(self, inputs: int, actions: int, count: int = 4, width: int = 128) -> None:
        super().__init__()
        self.count, self.width = count, width
        joint = inputs + actions
        self.first = nn.Parameter(torch.randn(joint, count * width) / math.sqrt(joint))
        self.second = nn.Parameter(torch.randn(count, width, width) / math.sqrt(width))
        self.last = nn.Parameter(torch.randn(count, width, 1) / math.sqrt(width))
        self.first_bias = nn.Parameter(torch.zeros(count * width))
        self.second_bias = nn.Parameter(torch.zeros(count, 1, width))
        self.last_bias = nn.Parameter(torch.zeros(count, 1, 1))

    def forward(self, x: Float[Tensor, "B D"], action: Float[Tensor, "B A"]) -> Float[Tensor, "K B"]:
        """Values of normalised inputs and actions."""
        # The first layers share their input, so they are one product; layer norm has no gain of its own,
        # since the next layer's weights can learn it.
        hidden = torch.addmm(self.first_bias, torch.cat([x, action], -1), self.first)
        hidden = F.relu(F.layer_norm(hidden.view(-1, self.count, self.width), (self.width,))).transpose(0, 1)
        hidden = torch.baddbmm(self.second_bias, hidden, self.second)
        hidden = F.relu(F.layer_norm(hidden, (self.width,)))
        return torch.baddbmm(self.last_bias, hidden, self.last).squeeze(-1)


@torch.no_grad()
def track(target: nn.Module, source: nn.Module, rate: float) -> None:
    """Move a target network's parameters the share `rate` towards the source's (Polyak averaging)."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), rate)
