"""One episode as a folder: a Zarr 3 group whose attributes list every file with its size and SHA-256.

Zarr readers take a missing chunk for fill values and say nothing, so reading here checks each file against
the list first, and the list against its own checksum.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DamagedEpisodeError, StoreError
from data.layout import column_names, episode_from
from data.manifest import sha256_bytes
from data.zarr_files import ArrayMeta, ZarrFileError, group_attributes, group_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.records import Episode

FORMAT = "robot-rl episode"
VERSION = 2
GROUP_FILE = "zarr.json"


class FolderWriter:
    """Writes the arrays and then the attributes of one episode into a new folder.

    Args:
        folder: Where; created here, must not exist.

    Raises:
        OSError: From any method: the folder cannot be written, or the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, list[int | str]] = {}
        self._made: set[str] = set()
        folder.mkdir()

    def array(self, path: str, parts: Iterable[NDArray[Any]], length: int) -> None:
        """Write one array.

        Args:
            path: Where in the group, such as ``"steps/action"``.
            parts: Consecutive rows; only those of one chunk are held in memory.
            length: Rows of all parts together.

        Raises:
            ValueError: The parts have another length, or differ in type or in the shape of a row.
        """
        meta: ArrayMeta | None = None
        waiting: list[NDArray[Any]] = []
        rows = written = seen = 0
        for part in parts:
            meta = meta or ArrayMeta.of(part, length)
            if part.dtype.name != meta.dtype or part.shape[1:] != meta.shape[1:]:
                raise ValueError(
                    f"{path} turns from {meta.dtype}{meta.shape[1:]} to {part.dtype}{part.shape[1:]}."
                )
            seen += len(part)
            waiting.append(part)
            rows += len(part)
            while rows >= meta.chunk_rows or (rows and seen == length):
                block = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
                self._chunk(path, meta, written, block[: meta.chunk_rows])
                waiting = [block[meta.chunk_rows :]]
                rows, written = len(waiting[0]), written + 1
        if meta is None or seen != length:
            raise ValueError(f"{path} has {seen} rows; {length} were announced.")
        self._put(f"{path}/{GROUP_FILE}", meta.to_bytes())

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the attributes, which make the folder an episode.

        Raises:
            ValueError: A fact holds NaN or infinity.
            TypeError: A fact is not JSON.
        """
        for group in sorted(_groups(self._files)):
            self._put(f"{group}/{GROUP_FILE}", group_bytes({}))
        attributes = {"format": FORMAT, "version": VERSION, **facts, "columns": column_names()}
        attributes["files"] = self._files
        content = group_bytes({**attributes, "sha256": _digest(attributes)})
        (self._folder / GROUP_FILE).write_bytes(content)

    def _chunk(self, path: str, meta: ArrayMeta, index: int, rows: NDArray[Any]) -> None:
        names = meta.chunk_names
        if index < len(names):
            self._put(f"{path}/{names[index]}", meta.encode(rows))

    def _put(self, path: str, content: bytes) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._made:
            (self._folder / parent).mkdir(parents=True, exist_ok=True)
            self._made.add(parent)
        (self._folder / path).write_bytes(content)
        self._files[path] = [len(content), sha256_bytes(content)]


def read_facts(folder: Path) -> dict[str, Any]:
    """Attributes of an episode's folder, checked against their checksum.

    Raises:
        DamagedEpisodeError: They are missing or were changed.
        StoreError: They were written by a newer version.
    """
    content = _read(folder, GROUP_FILE)
    try:
        attributes = group_attributes(content)
        digest = attributes.pop("sha256")
    except (ZarrFileError, KeyError) as error:
        raise _damaged(folder, f"{GROUP_FILE} is not readable ({error})") from error
    if attributes.get("version", 0) > VERSION:
        raise StoreError(
            f"Episode {folder.name} has format version {attributes['version']}; this release reads "
            f"up to {VERSION}. Update robot-rl."
        )
    if digest != _digest(attributes):
        raise _damaged(folder, f"{GROUP_FILE} was changed after it was written")
    return attributes


def read_episode(folder: Path) -> Episode:
    """Read an episode, every file checked.

    Raises:
        DamagedEpisodeError: A file is missing or was changed, or the parts do not fit together.
        StoreError: It was written by a newer version.
    """
    facts = read_facts(folder)
    try:
        return episode_from(facts, _arrays(folder, facts["files"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, f"its parts do not fit together ({error})") from error


def _arrays(folder: Path, files: Mapping[str, tuple[int, str]]) -> dict[str, NDArray[Any]]:
    contents = {}
    for path, (size, digest) in files.items():
        content = _read(folder, path)
        if len(content) != size:
            raise _damaged(folder, f"{path} has {len(content)} bytes, {size} were written")
        if sha256_bytes(content) != digest:
            raise _damaged(folder, f"{path} was changed after it was written")
        contents[path] = content
    arrays = [path.removesuffix(f"/{GROUP_FILE}") for path in files if path.endswith(f"/{GROUP_FILE}")]
    groups = _groups(f"{array}/{GROUP_FILE}" for array in arrays)
    return {array: _array(folder, array, contents) for array in arrays if array not in groups}


def _array(folder: Path, path: str, contents: Mapping[str, bytes]) -> NDArray[Any]:
    try:
        meta = ArrayMeta.from_bytes(contents[f"{path}/{GROUP_FILE}"])
        names = [f"{path}/{name}" for name in meta.chunk_names]
        missing = [name for name in names if name not in contents]
        if missing:
            raise _damaged(folder, f"{missing[0]} is not in the list of files")
        chunks = [meta.decode(contents[name]) for name in names]
    except ZarrFileError as error:
        raise _damaged(folder, f"{path}: {error}") from error
    if not chunks:
        return np.zeros(meta.shape, meta.dtype)
    rows = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return rows[: meta.shape[0]].astype(meta.dtype, copy=False)


def _groups(files: Iterable[str]) -> set[str]:
    """Folders that hold the folders of these files, the episode's own left out."""
    return {
        "/".join(parts[:depth])
        for path in files
        for parts in [path.split("/")]
        for depth in range(1, len(parts) - 1)
    }


def _read(folder: Path, path: str) -> bytes:
    if ".." in path.split("/") or path.startswith("/"):
        raise _damaged(folder, f"its list of files names {path!r}, which lies outside")
    try:
        return (folder / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _damaged(folder, f"{path} is missing") from None
    except OSError as error:
        raise _damaged(folder, f"{path} cannot be read ({error.strerror})") from error


def _damaged(folder: Path, what: str) -> DamagedEpisodeError:
    return DamagedEpisodeError(
        f"Episode {folder.name} is damaged: {what}. Restore {folder} from a copy or remove it; "
        "the other episodes are not affected."
    )


def _digest(attributes: Mapping[str, Any]) -> str:
    return sha256_bytes(json.dumps(attributes, sort_keys=True, allow_nan=False).encode())
