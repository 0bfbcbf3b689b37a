"""Packages that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str, what: str) -> Any:  # noqa: ANN401 - a module
    """Import a package that comes with an extra.

    Args:
        module: Its import name.
        extra: The extra of robot-rl that brings it.
        what: What it is needed for, such as ``"Writing a LeRobotDataset"``.

    Raises:
        ImportError: It is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {module}, which cannot be imported ({error}). "
            f"Install it with `pip install 'robot-rl[{extra}]'`.",
            name=module,
        ) from error
