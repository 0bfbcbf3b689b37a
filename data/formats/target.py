"""A new file or folder that is there whole or not at all."""

from __future__ import annotations

import errno
import glob
import logging
import os
import platform
import shutil
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from data.store_root import is_store

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
"""Of this computer: processes of others that share a folder cannot be asked whether they live."""


@contextmanager
def new_target(path: Path | str) -> Iterator[Path]:
    """A place beside the target to write a file or folder to; it gets the target's name at the end.

    Nothing is left behind when the block raises. What a killed process left half written for the same path
    goes with the next one on the same computer.

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
    _remove_abandoned(path)
    _refuse_existing(path)
    refuse_inside_store(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{uuid4().hex}.part")
    try:
        yield part
        _publish(part, path)
    finally:
        _remove(part)


def _publish(part: Path, path: Path) -> None:
    """Give what is whole its name; one who had the same name first, at whatever moment, keeps it."""
    _refuse_existing(path)
    if part.is_dir():
        try:
            part.rename(path)  # replaces no file, and no folder that holds anything
        except (FileExistsError, NotADirectoryError) as error:
            raise _exists(path) from error
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise _exists(path) from error
            raise
        return
    try:
        os.link(part, path)  # where a rename would replace a file
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # a file system without links
        part.rename(path)


def _remove_abandoned(path: Path) -> None:
    for part in path.parent.glob(f".{glob.escape(path.name)}.{_HOST}-*-*.part"):
        owner = part.name.rsplit("-", 2)[1]
        if owner.isdecimal() and not _alive(int(owner)):
            logger.warning("Removing %s, which process %s left when it was killed.", part, owner)
            _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # somebody else's, or no process at all
        return True
    return True


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
        raise _exists(path)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists already; choose another name or remove it first.")
