"""Students of a frozen flow policy: a full copy, or low-rank adapters that borrow the base's weights."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from policies.flow_loss import drop_conditions, matching_loss
from policies.hashing import tensors_hash
from policies.policy import PolicySpec, TrainablePolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float

    from policies.context import Context, TensorContext
    from policies.flow import FlowPolicy
    from policies.request import ActionBatch, Condition, Observation


def make_student(base: FlowPolicy, kind: Literal["copy", "lora"], rank: int) -> TrainablePolicy:
    """Return a student of a flow policy; see `TrainablePolicy.student`.

    Raises:
        ValueError: if the kind is unknown.
    """
    if kind == "copy":
        return copy.deepcopy(base).requires_grad_(True)
    if kind == "lora":
        return LoraStudent(base, rank)
    raise ValueError(f"student kind is {kind!r}; allowed: 'copy', 'lora'")


class _Adapter(nn.Module):
    """A low-rank addition to one linear layer, zero at the start (Hu et al. 2021, section 4.1)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        weight = layer.weight.detach()
        self.down = nn.Parameter(weight.new_empty(rank, layer.in_features))
        self.up = nn.Parameter(weight.new_zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, value: Tensor) -> Tensor:
        return value @ self.down.T @ self.up.T


class LoraStudent(nn.Module, TrainablePolicy):
    """A student that owns adapters only. The base keeps its names, tensors and hash.

    The adapters act only inside `adapted`, which `encode` and `velocity` enter by themselves, so that base
    and student can both be evaluated in one update. Not for several threads at once: they share the base.

    Args:
        base: the frozen policy; not copied, and not part of this module's parameters or state.
        rank: of each adapter.
    """

    def __init__(self, base: FlowPolicy, rank: int) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"rank is {rank}; it must be at least 1")
        # In a tuple, so that nn.Module does not list the base's parameters as ours.
        self._base = (base,)
        self.rank = rank
        layers = {name: layer for name, layer in base.named_modules() if isinstance(layer, nn.Linear)}
        self._targets = tuple(layers)
        self.adapters = nn.ModuleList(_Adapter(layer, rank) for layer in layers.values())

    @property
    def base(self) -> FlowPolicy:
        """The policy whose weights this student borrows."""
        return self._base[0]

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts, those of the base."""
        return self.base.spec

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.base.device

    @contextmanager
    def adapted(self) -> Iterator[FlowPolicy]:
        """Switch the adapters on and the base's gradients off while inside."""
        base = self.base
        trainable = [parameter for parameter in base.parameters() if parameter.requires_grad]
        handles = []
        try:
            for parameter in trainable:
                parameter.requires_grad_(False)
            for name, adapter in zip(self._targets, self.adapters, strict=True):
                layer = base.get_submodule(name)
                handles.append(layer.register_forward_hook(lambda _m, i, o, a=adapter: o + a(i[0])))
            yield base
        finally:
            for handle in handles:
                handle.remove()
            for parameter in trainable:
                parameter.requires_grad_(True)

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Encode with the adapters on; see `ChunkPolicy.encode`."""
        with self.adapted() as policy:
            return policy.encode(observation, condition)

    def velocity(
        self, x: Float[Tensor, "B H A"], sigma: Float[Tensor, " B"] | Float[Tensor, "B H"], context: Context
    ) -> Float[Tensor, "B H A"]:
        """Return the velocity with the adapters on; see `ChunkPolicy.velocity`."""
        with self.adapted() as policy:
            return policy.velocity(x, sigma, context)

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return the base's noise levels."""
        return self.base.sigmas(steps)

    def decode(self, x: Float[Tensor, "B H A"], context: Context) -> Float[Tensor, "B H A"]:
        """Return actions in robot units; differentiable."""
        return self.base.decode(x, context)

    def encode_action(self, action: Float[Tensor, "B H A"], context: Context) -> Float[Tensor, "B H A"]:
        """Return robot-unit actions in the space of x."""
        return self.base.encode_action(action, context)

    def draw_sigma(self, rows: int) -> Float[Tensor, " B"]:
        """Draw training noise levels as the base does."""
        return self.base.draw_sigma(rows)

    def flow_loss(
        self,
        batch: ActionBatch,
        noise: Float[Tensor, "B H A"] | None = None,
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"] | None = None,
        weights: Float[Tensor, " B"] | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, " B"]:
        """Return the flow-matching loss per row; see `TrainablePolicy.flow_loss`."""
        share = self.base.config.condition_dropout if self.training else 0.0
        return matching_loss(
            self, drop_conditions(batch, share), noise=noise, sigma=sigma, weights=weights, mask=mask
        )

    def student(self, kind: Literal["copy", "lora"] = "copy", *, rank: int = 8) -> LoraStudent:
        """Return a copy of the adapters on the same base.

        Args:
            kind: both kinds give the same here: a student of adapters owns adapters.
            rank: ignored unless equal to this student's.

        Raises:
            ValueError: if another rank is asked for with kind "lora".
        """
        if kind == "lora" and rank != self.rank:
            raise ValueError(f"rank is {rank}; the student of a LoRA student keeps its rank {self.rank}")
        other = LoraStudent(self.base, self.rank)
        other.load_state_dict(self.state_dict())
        return other

    def hash(self) -> str:
        """Return the SHA-256 of the base's tensors together with the adapters'."""
        base = {f"base.{name}": tensor for name, tensor in self.base.state_dict().items()}
        return tensors_hash(base | self.state_dict())
