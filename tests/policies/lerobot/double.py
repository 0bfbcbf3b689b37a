"""Run a network that casts to float32 inside in float64, so that finite differences mean something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class DoubleMode(TorchFunctionMode):
    """Inside, whatever asks torch for float32 gets float64."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        if func is Tensor.float:
            return args[0].double()
        wider = {torch.float32: torch.float64}
        args = tuple(wider.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        named = {k: wider.get(v, v) if isinstance(v, torch.dtype) else v for k, v in (kwargs or {}).items()}
        return func(*args, **named)


def directional_gap(function: Callable[[Tensor], Tensor], x: Tensor, seed: int = 0) -> float:
    """Return how far the gradient of a scalar function is from a central difference, relative to its size.

    Args:
        function: of x; scalar.
        x: float64.
        seed: of the direction.
    """
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf)
    width = 1e-6
    with torch.no_grad():
        difference = (function(x + width * direction) - function(x - width * direction)) / (2 * width)
    exact = float((gradient * direction).sum())
    return abs(float(difference) - exact) / abs(exact)
