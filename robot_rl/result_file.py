"""The JSON file that a command writes for other programs."""

import os
from pathlib import Path
from typing import Any

from data.manifest import atomic_write_json


def check_result_file(file: Path | None) -> None:
    """Refuse a file that could not be written, before the work that it is for.

    Raises:
        ValueError: if it is a folder, or its folder cannot be written.
    """
    if file is None:
        return
    if file.is_dir():
        raise ValueError(f"json is {file}, which is a folder: give a file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"json is {file}, whose folder is not made ({error.strerror}): give a file elsewhere"
        ) from error
    if not os.access(file.parent, os.W_OK):
        raise ValueError(f"json is {file}, whose folder cannot be written: give another file")


def write_result_file(file: Path | None, content: Any) -> None:  # noqa: ANN401 - any JSON
    """Write a result for other programs; does nothing without a file."""
    if file is not None:
        atomic_write_json(file, content)
