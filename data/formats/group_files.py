"""Files below one root, in a folder or in a zip file that is read in place; nothing outside is opened."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from data.errors import DatasetError

if TYPE_CHECKING:
    from pathlib import Path


class Files(Protocol):
    """Files by their path below the root of a Zarr group."""

    place: str

    def names(self) -> list[str]:
        """Paths of all files, sorted."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Content of a file; None where there is none.

        Raises:
            DatasetError: It has more than `limit` bytes or cannot be read.
        """


class FolderFiles:
    """Files in a folder; links that lead out of it are refused.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._root = path

    def names(self) -> list[str]:
        """Paths of all files, sorted."""
        found = []
        for entry in self._root.rglob("*"):
            if entry.is_symlink() and entry.is_dir():
                raise DatasetError(
                    f"{self.place}: folder {entry.name!r} is a link; it is not followed. Copy it there."
                )
            if entry.is_file():
                found.append(entry.relative_to(self._root).as_posix())
        return sorted(found)

    def read(self, name: str, limit: int) -> bytes | None:
        """Content of a file; see `Files`."""
        file = self._root / name
        if not file.exists():
            return None
        if not file.resolve().is_relative_to(self._root.resolve()):
            raise DatasetError(f"{self.place}: {name!r} leads to {file.resolve()}, outside; it is not read.")
        if file.stat().st_size > limit:
            raise DatasetError(f"{self.place}: {name} has {file.stat().st_size} bytes, more than {limit}.")
        try:
            return file.read_bytes()
        except OSError as error:
            raise DatasetError(f"{self.place}: {name} cannot be read: {error.strerror}.") from error


class ZipFiles:
    """Files in a zip file, read in place.

    Args:
        path: The zip file; where all of it lies in one folder that is a group, that folder is the root.

    Raises:
        DatasetError: It is no zip file, or names a file twice or outside of it.
    """

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise DatasetError(f"{path} cannot be opened as zip, it may be cut short: {error}.") from error
        entries = [entry for entry in self._zip.infolist() if not entry.is_dir()]
        self._entries = {entry.filename: entry for entry in entries}
        outside = [
            name for name in self._entries if name.startswith("/") or ".." in PurePosixPath(name).parts
        ]
        if outside or len(self._entries) < len(entries):
            raise DatasetError(
                f"{path} names {outside[:3] or 'a file twice'}; such a zip file is not read. Pack it anew."
            )
        self._below = _common_folder(self._entries)

    def names(self) -> list[str]:
        """Paths of all files, sorted."""
        return sorted(name.removeprefix(self._below) for name in self._entries)

    def read(self, name: str, limit: int) -> bytes | None:
        """Content of a file; see `Files`."""
        entry = self._entries.get(self._below + name)
        if entry is None:
            return None
        if entry.file_size > limit:
            raise DatasetError(f"{self.place}: {name} unfolds to {entry.file_size} bytes, more than {limit}.")
        try:
            with self._zip.open(entry) as file:
                content = file.read(limit + 1)
        except (
            zipfile.BadZipFile,
            OSError,
            zlib.error,
            NotImplementedError,
            RuntimeError,
            EOFError,
        ) as error:
            raise DatasetError(f"{self.place}: {name} cannot be read: {error}.") from error
        if len(content) != entry.file_size:
            raise DatasetError(f"{self.place}: {name} has another size than the zip file says.")
        return content


def open_files(path: Path) -> Files:
    """The files of a Zarr group in a folder or a zip file.

    Raises:
        DatasetError: It is neither.
    """
    if path.is_dir():
        return FolderFiles(path)
    return ZipFiles(path)


def _common_folder(names: dict[str, Any]) -> str:
    """Folder that all of a zip file lies in, where somebody packed the folder and not its content."""
    tops = {name.split("/")[0] for name in names}
    inside = all("/" in name for name in names)
    only = next(iter(tops), "")
    return f"{only}/" if len(tops) == 1 and inside and f"{only}/.zgroup" in names else ""
