"""Atomic writes and checksums: a file is there whole or not at all, and a changed byte is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

_READ_BYTES = 1 << 20


def sha256_bytes(content: bytes) -> str:
    """SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's content, as 64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Wait until the disk itself knows which files a folder holds.

    Raises:
        OSError: The folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, *, durable: bool = False) -> None:
    """Make a folder and those above it where they are missing.

    Args:
        folder: Which.
        durable: Whether to wait until the disk itself knows each that is made.

    Raises:
        OSError: One cannot be made.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()] if durable else []
    folder.mkdir(parents=True, exist_ok=True)
    for place in reversed(made):
        sync_folder(place.parent)


def atomic_write_bytes(path: Path | str, content: bytes) -> None:
    """Write a file so that a reader, also after a crash, sees the old content or the new, never a mixture.

    Raises:
        OSError: The folder does not exist or cannot be written, or the disk is full; the old file stays. Or
            the path is a folder or device, which a file must not replace.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a {_kind(path)}, which no file may replace: give a file")
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_new_bytes(path: Path | str, content: bytes) -> bool:
    """Write a file that is not there yet, whole or not at all; says whether nobody else was first.

    Raises:
        OSError: The folder does not exist or cannot be written, or the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:
        if not temporary.exists() or path.exists():
            raise
        temporary.replace(path)  # a file system without links
    finally:
        temporary.unlink(missing_ok=True)
    return True


def check_writable(path: Path, name: str) -> None:
    """Refuse, before the work whose result goes there, a place where no file can be written.

    Args:
        path: Of the file; its folder is made.
        name: Of the option that gave it.

    Raises:
        ValueError: It is a folder or a device, or its folder cannot be made or written.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{name} is {path}, which is a {_kind(path)}: give a file")
    try:
        writable_folder(path.parent)
    except ValueError as error:
        raise ValueError(f"{name} is {path}, but {error}: give a file elsewhere") from error


def writable_folder(folder: Path) -> Path:
    """Make a folder, before the work whose results go there.

    Raises:
        ValueError: It cannot be made, or not be written; says which folder and why.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror})") from error
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written")
    return folder


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "device"


def atomic_write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text as `atomic_write_bytes` does."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path | str, value: Any, *, indent: int | None = 2) -> None:  # noqa: ANN401 - any JSON
    """Write JSON as `atomic_write_bytes` does.

    Raises:
        ValueError: The value holds NaN or infinity, which JSON cannot say.
        TypeError: The value holds something that is not JSON.
    """
    atomic_write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def file_manifest(folder: Path | str) -> dict[str, dict[str, int | str]]:
    """Size and SHA-256 of every file below a folder, by relative POSIX path, in sorted order."""
    folder = Path(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in files
    }
