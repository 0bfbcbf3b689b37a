"""A new file or folder that is there whole or not at all."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from data.store_root import is_store

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def new_target(path: Path | str) -> Iterator[Path]:
    """A place beside the target to write a file or folder to; it gets the target's name at the end.

    Nothing is left behind when the block raises.

    Args:
        path: Where the result shall be; must not exist. Its parent folder is created.

    Yields:
        A path that does not exist yet, on the same file system.

    Raises:
        FileExistsError: There is something at the path, also when it came while writing.
        ValueError: It lies inside an episode store, where everything counts as an episode.
        OSError: The folder cannot be written.
    """
    path = Path(path)
    _refuse_existing(path)
    refuse_inside_store(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        yield part
        _refuse_existing(path)
        part.rename(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def refuse_inside_store(path: Path) -> None:
    """Refuse a place for something new inside an episode store, whose folders all count as episodes.

    Raises:
        ValueError: It is one; names the store.
    """
    for folder in path.resolve().parents:
        if is_store(folder):
            raise ValueError(f"{path} lies inside the episode store {folder}: choose a place beside it.")


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists already; choose another name or remove it first.")
