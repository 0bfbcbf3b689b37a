"""The JSON file that a command writes for other programs."""

from pathlib import Path
from typing import Any

from data.manifest import atomic_write_json, check_writable


def check_result_file(file: Path | None) -> None:
    """Refuse a file that could not be written, before the work that it is for.

    Raises:
        ValueError: if it is a folder or device, or its folder cannot be written.
    """
    if file is not None:
        check_writable(file, "json")


def write_result_file(file: Path | None, content: Any) -> None:  # noqa: ANN401 - any JSON
    """Write a result for other programs; does nothing without a file."""
    if file is not None:
        atomic_write_json(file, content)
