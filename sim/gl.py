"""Choice of the library that MuJoCo draws with."""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}


def choose_backend() -> None:
    """Set MUJOCO_GL to an installed off-screen library, on Linux without a display, unless it is set.

    MuJoCo reads the variable when it is first imported; after that it is too late, and nothing is changed.
    """
    if (
        "mujoco" in sys.modules
        or "MUJOCO_GL" in os.environ
        or "DISPLAY" in os.environ
        or sys.platform != "linux"
    ):
        return
    for backend, library in _LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = backend
        return
