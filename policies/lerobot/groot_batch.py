"""Batches of GR00T cut into rows with texts of equal length, and what became of them put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_TOKENS = ("input_ids", "attention_mask", "mm_token_type_ids")
_PATCHES = "pixel_values"
_GRID = "image_grid_thw"


def same_length(inputs: dict[str, Tensor]) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield the rows of each length of text, without padding.

    Args:
        inputs: of the network; texts are padded on the left, and the patches of all images are one list.
    """
    lengths = inputs["attention_mask"].sum(dim=1)
    patches = _patches(inputs)
    for length in sorted(set(lengths.tolist())):
        rows = (lengths == length).nonzero().flatten().tolist()
        grid = inputs[_GRID].reshape(len(lengths), -1, 3)
        part = {
            name: value[rows][:, -length:] if name in _TOKENS else value[rows]
            for name, value in inputs.items()
            if name not in (_PATCHES, _GRID)
        }
        part[_PATCHES] = torch.cat([patches[row] for row in rows])
        part[_GRID] = grid[rows].reshape(-1, 3)
        yield rows, part


def joined(parts: Sequence[tuple[Sequence[int], dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the rows of all parts in their order, sequences padded on the left with zeros.

    Args:
        parts: rows, and their tensors (rows, ...) by name.
    """
    order = torch.tensor([row for rows, _ in parts for row in rows]).argsort()
    found = {}
    for name in parts[0][1]:
        values = [part[name] for _, part in parts]
        longest = max(value.shape[1] if value.ndim > 1 else 0 for value in values)
        found[name] = torch.cat([_left(value, longest) for value in values])[order.to(values[0].device)]
    return found


def _patches(inputs: dict[str, Tensor]) -> Sequence[Tensor]:
    """The image patches of each row; every row has as many images."""
    counts = inputs[_GRID].prod(dim=1).reshape(len(inputs["attention_mask"]), -1).sum(dim=1)
    return torch.split(inputs[_PATCHES], counts.tolist())


def _left(value: Tensor, length: int) -> Tensor:
    if value.ndim < 2 or value.shape[1] == length:
        return value
    widths = [0, 0] * (value.ndim - 2) + [length - value.shape[1], 0]
    return functional.pad(value, widths)
