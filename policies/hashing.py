"""A hash of everything a module knows, to prove that a frozen policy stayed what it was."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn


def policy_hash(module: nn.Module) -> str:
    """Return the SHA-256 of all parameters and persistent buffers: names, types, shapes and bytes.

    The device does not enter. Two modules agree exactly when they hold the same tensors under the same names.

    Args:
        module: any module; it is not changed.
    """
    return tensors_hash(module.state_dict())


def tensors_hash(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of named tensors, independent of their order.

    Args:
        tensors: name -> tensor of any type.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
