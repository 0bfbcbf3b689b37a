"""Actions padded to a fixed width: a hook steers the real dimensions only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def keep_padding(changed: Tensor, own: Tensor, width: int) -> Tensor:
    """Return what a hook made of x or of the velocity, its padded dimensions put back.

    A network reads the padded dimensions too, so a hook that moved them could turn the real actions in a way
    that no training ever showed the network.

    Args:
        changed: (B, H, Z) after the hooks.
        own: (B, H, Z) before them; where `changed` is this very object it is returned as it is.
        width: A, the number of real dimensions, which come first.
    """
    if changed is own or own.shape[-1] == width:
        return changed
    return torch.cat([changed[..., :width], own[..., width:]], dim=-1)
