"""Importing and building other people's simulators without their side effects on this process."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep what runs inside from printing, warning, logging below errors and setting environment variables.

    Standard output belongs to results (pygame greets there). Warnings and remarks are for who wrote it:
    robosuite has invalid escapes in its texts and remarks on private settings, and pygame imports
    pkg_resources, which is deprecated. The environment is inherited by child processes (OpenCV puts itself
    into LD_LIBRARY_PATH, robosuite chooses MUJOCO_GL).
    """
    before, disabled = dict(os.environ), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
