"""The weights of a LeRobot checkpoint, all of them or an error; LeRobot itself goes on with what fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.checkpoint import CheckpointError, read_tensors
from policies.lerobot.files import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    Rename = Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]]

_COMPILED = "_orig_mod."
_NAMED = 4


def load_weights(model: nn.Module, folder: Path, rename: Rename | None = None) -> None:
    """Fill a model from ``model.safetensors``.

    Tensors that a model holds under two names are stored once; weights saved from a compiled model carry its
    prefix. Both are understood.

    Args:
        model: of LeRobot, on the CPU.
        folder: of the checkpoint.
        rename: turns the model and the stored tensors into tensors under the names of the model.

    Raises:
        CheckpointError: naming what is missing, unknown or has another shape.
    """
    tensors = {name.replace(_COMPILED, ""): value for name, value in read_tensors(folder / WEIGHTS).items()}
    tensors = tensors if rename is None else rename(model, tensors)
    own = model.state_dict()
    lines = [
        f"{name} has shape {tuple(tensors[name].shape)}, the configuration makes it {tuple(own[name].shape)}"
        for name in sorted(own.keys() & tensors.keys())
        if own[name].shape != tensors[name].shape
    ]
    lines += [f"{name} is missing" for name in _missing(own, tensors)]
    lines += [f"{name} is not part of the model" for name in sorted(tensors.keys() - own.keys())]
    if lines:
        more = f", and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
        raise CheckpointError(
            f"the weights of {folder} do not fit its configuration: {'; '.join(lines[:_NAMED])}{more}"
        )
    model.load_state_dict(tensors, strict=False)


def _missing(own: dict[str, Tensor], tensors: dict[str, Tensor]) -> list[str]:
    """Names that are stored under no alias either."""
    stored = {own[name].data_ptr() for name in own.keys() & tensors.keys() if own[name].numel()}
    return [
        name
        for name in sorted(own.keys() - tensors.keys())
        if not (own[name].numel() and own[name].data_ptr() in stored)
    ]
