"""What a policy computes from an observation once per chunk, and rows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


class Context(Protocol):
    """An encoded observation: image features, a prefix cache, whatever the velocity network needs.

    Rows are independent. A context is immutable for its users: the sampler, hooks and selectors share it.
    """

    @property
    def batch_size(self) -> int:
        """The number of rows B."""
        ...

    def rows(self, index: Sequence[int] | Tensor) -> Self:
        """Return the chosen rows (a row may occur more than once)."""
        ...

    def repeat(self, count: int) -> Self:
        """Return every row `count` times in a row: (B, ...) -> (B * count, ...), row i at i*count onwards."""
        ...


@dataclass(frozen=True)
class TensorContext:
    """A context that is a set of named tensors, each with B rows.

    Attributes:
        tensors: name -> (B, ...).
    """

    tensors: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        sizes = {name: tensor.shape[0] for name, tensor in self.tensors.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the tensors of a context need one common number of rows, got {sizes}")

    @property
    def batch_size(self) -> int:
        """The number of rows B."""
        return next(iter(self.tensors.values())).shape[0]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def rows(self, index: Sequence[int] | Tensor) -> Self:
        """Return the chosen rows (a row may occur more than once)."""
        chosen = index if isinstance(index, Tensor) else list(index)
        return type(self)({name: tensor[chosen] for name, tensor in self.tensors.items()})

    def repeat(self, count: int) -> Self:
        """Return every row `count` times in a row: row i at i*count onwards."""
        if count < 1:
            raise ValueError(f"count is {count}; repeat each row at least once")
        return type(self)({name: tensor.repeat_interleave(count, 0) for name, tensor in self.tensors.items()})
