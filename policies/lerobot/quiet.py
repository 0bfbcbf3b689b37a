"""Building a model from parts prints bars and lists of weights that are loaded anyway a moment later."""

from __future__ import annotations

import io
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from data.formats.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let transformers report errors only, and keep what LeRobot prints from standard output."""
    logging: Any = require("transformers.utils.logging", "vla", "A LeRobot checkpoint")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
