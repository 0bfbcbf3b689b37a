"""Torch devices by name, checked before anything is computed."""

from __future__ import annotations

import torch


def check_device(name: torch.device | str) -> torch.device:
    """Return a device that works here.

    Args:
        name: such as ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Raises:
        ValueError: torch does not know it, or this machine does not have it.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device is {str(name)!r}, which does not work here: allowed is {_present()}"
        ) from error
    return device


def _present() -> str:
    found = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return ", ".join([*found, "mps"] if torch.backends.mps.is_available() else found)
