"""One episode as a folder: a Zarr 3 group whose attributes list every file with its size and SHA-256.

Zarr readers take a missing chunk for fill values and say nothing, so reading here checks each file against
the list first, and the list against its own checksum.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DamagedEpisodeError, LengthError, StoreError
from data.images import PictureCodec, PictureError
from data.layout import episode_from
from data.manifest import sha256_bytes
from data.memory import available_memory
from data.picture_files import ROW, Pictures, checksums_from, read_index
from data.picture_video import decode_av1
from data.zarr_files import ArrayMeta, ZarrFileError, group_attributes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.records import Episode

FORMAT = "robot-rl episode"
VERSION = 2
GROUP_FILE = "zarr.json"
EACH = "crc32c of each picture"
"""Stands for the SHA-256 of a file of pictures, each of which has a checksum of its own."""


def read_facts(folder: Path) -> dict[str, Any]:
    """Attributes of an episode's folder, checked against their checksum and its name.

    Raises:
        DamagedEpisodeError: They are missing, were changed, or are those of another episode.
        StoreError: They were written by a newer version.
    """
    content = _read(folder, GROUP_FILE)
    try:
        attributes = group_attributes(content)
        digest = attributes.pop("sha256")
    except (ZarrFileError, KeyError) as error:
        raise _damaged(folder, f"{GROUP_FILE} is not readable ({error})") from error
    version = attributes.get("version")
    if isinstance(version, int) and version > VERSION:
        raise StoreError(
            f"Episode {folder.name} has format version {version}; this release reads "
            f"up to {VERSION}. Update robot-rl."
        )
    if digest != digest_of(attributes):
        raise _damaged(folder, f"{GROUP_FILE} was changed after it was written")
    if attributes.get("id") != folder.name:
        raise _damaged(
            folder,
            f"{GROUP_FILE} is that of episode {attributes.get('id')!r}: the folder was renamed or swapped",
        )
    return attributes


def read_episode(folder: Path, *, pictures: bool = True) -> Episode:
    """Read an episode, every byte checked.

    Args:
        folder: Where.
        pictures: Whether to unpack the pictures; without, the observations and streams lack them.

    Raises:
        DamagedEpisodeError: A file is missing or was changed, or the parts do not fit together.
        StoreError: It was written by a newer version, or its pictures do not fit into memory.
    """
    facts = read_facts(folder)
    known = facts.get("pictures", {})  # the first format version had none apart from other arrays
    try:
        arrays = _arrays(folder, facts["files"], known)
        if pictures:
            _refuse_too_large(folder, known)
            arrays |= {path: _unpacked(folder, path, facts) for path in known}
        else:
            arrays = {path: rows for path, rows in arrays.items() if f"{_parent(path)}/values" not in known}
        episode = episode_from(facts, arrays)
        if facts["steps"] != len(episode):
            raise LengthError(f"it says {facts['steps']} steps, its arrays hold {len(episode)}")
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(folder, f"its parts do not fit together ({error})") from error
    return episode


def open_pictures(folder: Path, path: str) -> Pictures:
    """Open the pictures of one camera, to read them one by one.

    Raises:
        KeyError: There are no pictures at this path.
        DamagedEpisodeError: A file is missing or was changed.
        StoreError: They are stored as a video, which is read as a whole.
    """
    return _open(folder, path, read_facts(folder))


def check_pictures(folder: Path) -> None:
    """Unpack every picture of an episode, one at a time, and keep none.

    Raises:
        DamagedEpisodeError: One is missing or was changed.
        StoreError: A video, which is unpacked as a whole, does not fit into memory.
    """
    facts = read_facts(folder)
    for path, known in facts.get("pictures", {}).items():
        if PictureCodec.from_json(known["codec"]).kind == "av1":
            _refuse_too_large(folder, {path: known})
            _unpacked(folder, path, facts)
            continue
        with _open(folder, path, facts) as pictures:
            try:
                for row in range(len(pictures)):
                    pictures[row]
            except (PictureError, OSError) as error:
                raise _damaged(folder, f"{picture_file(path, pictures.codec)}: {error}") from error


def _open(folder: Path, path: str, facts: Mapping[str, Any]) -> Pictures:
    known = facts.get("pictures", {})
    if path not in known:
        raise KeyError(f"Episode {folder.name} has no pictures at {path!r}; there are {sorted(known)}.")
    codec = PictureCodec.from_json(known[path]["codec"])
    if codec.kind == "av1":
        raise StoreError(
            f"Episode {folder.name}: {path} is stored as a video, which is read as a whole: use "
            "EpisodeStore.read."
        )
    shape = tuple(int(size) for size in known[path]["shape"])
    name = picture_file(path, codec)
    file = inside(folder, name)
    try:
        if codec.kind == "lossless":
            _checked(folder, f"{path}/{GROUP_FILE}", facts["files"])
            table = read_index(file, shape[0])
            if "crc32c" in known[path]:  # not in episodes of earlier releases
                table = np.column_stack([table, checksums_from(known[path]["crc32c"], shape[0])])
        else:
            paths = [found for found in facts["files"] if found.startswith(f"{path}/frames/")]
            contents = {found: _checked(folder, found, facts["files"]) for found in paths}
            table = _array(folder, f"{path}/frames", contents).reshape(shape[0], len(ROW))
        return Pictures(file, codec, shape[1:], table)
    except PictureError as error:
        raise _damaged(folder, f"{name}: {error}") from error
    except FileNotFoundError:
        raise _damaged(folder, f"{name} is missing") from None
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error


def _unpacked(folder: Path, path: str, facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    codec = PictureCodec.from_json(facts["pictures"][path]["codec"])
    if codec.kind == "av1":
        name = picture_file(path, codec)
        try:
            return decode_av1(inside(folder, name), tuple(facts["pictures"][path]["shape"]))
        except PictureError as error:
            raise _damaged(folder, f"{name}: {error}") from error
    with _open(folder, path, facts) as pictures:
        try:
            return pictures[:]
        except (PictureError, OSError) as error:
            name = picture_file(path, pictures.codec)
            raise _damaged(folder, f"{name}: {error}") from error


def _refuse_too_large(folder: Path, pictures: Mapping[str, Any]) -> None:
    needed = sum(math.prod(entry["shape"]) for entry in pictures.values())
    free = available_memory()
    if needed > free:
        raise StoreError(
            f"The pictures of episode {folder.name} take {needed / 1e9:.1f} GB when unpacked, and "
            f"{free / 1e9:.1f} GB of memory are free. Read it with pictures=False, and its pictures one "
            "by one with EpisodeStore.pictures."
        )


def picture_file(path: str, codec: PictureCodec) -> str:
    """Where the pictures of an array lie in the folder."""
    return f"{path}/c.0.0.0.0" if codec.kind == "lossless" else f"{path}/bytes/c.0"


def _arrays(
    folder: Path, files: Mapping[str, tuple[int, str]], pictures: Collection[str]
) -> dict[str, NDArray[Any]]:
    contents = {}
    for path, (size, digest) in files.items():
        if digest != EACH:
            contents[path] = _checked(folder, path, files)
        elif _size(folder, path) != size:
            raise _damaged(folder, f"{path} has {_size(folder, path)} bytes, {size} were written")
    arrays = [path.removesuffix(f"/{GROUP_FILE}") for path in files if path.endswith(f"/{GROUP_FILE}")]
    groups = groups_of(f"{array}/{GROUP_FILE}" for array in arrays)
    skipped = groups | {array for array in arrays if {array, _parent(array)} & set(pictures)}
    return {array: _array(folder, array, contents) for array in arrays if array not in skipped}


def _checked(folder: Path, path: str, files: Mapping[str, tuple[int, str]]) -> bytes:
    size, digest = files[path]
    if _size(folder, path) != size:  # before anything is read: what lies there may have no end
        raise _damaged(folder, f"{path} has {_size(folder, path)} bytes, {size} were written")
    content = _read(folder, path)
    if sha256_bytes(content) != digest:
        raise _damaged(folder, f"{path} was changed after it was written")
    return content


def _array(folder: Path, path: str, contents: Mapping[str, bytes]) -> NDArray[Any]:
    try:
        meta = ArrayMeta.from_bytes(contents[f"{path}/{GROUP_FILE}"])
        if meta.chunk_count > len(contents):
            raise _damaged(
                folder, f"{path} says it has {meta.chunk_count} chunks, the folder has fewer files"
            )
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


def groups_of(files: Iterable[str]) -> set[str]:
    """Folders that hold the folders of these files, the episode's own left out."""
    return {
        "/".join(parts[:depth])
        for path in files
        for parts in [path.split("/")]
        for depth in range(1, len(parts) - 1)
    }


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _size(folder: Path, path: str) -> int:
    try:
        return inside(folder, path).stat().st_size
    except OSError as error:
        raise _damaged(folder, f"{path} is missing") from error


def inside(folder: Path, path: str) -> Path:
    """Where a file of an episode lies.

    Raises:
        DamagedEpisodeError: That is outside the folder, or something lies there that is no file, such as a
            pipe, from which reading would never come back.
    """
    if ".." in path.split("/") or path.startswith("/"):
        raise _damaged(folder, f"its list of files names {path!r}, which lies outside")
    found = folder / path
    if os.path.exists(found) and not os.path.isfile(found):  # noqa: PTH110, PTH113 - those raise where these say no
        raise _damaged(folder, f"{path} is no plain file")
    return found


def _read(folder: Path, path: str) -> bytes:
    try:
        return inside(folder, path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _damaged(folder, f"{path} is missing") from None
    except OSError as error:
        raise _damaged(folder, f"{path} cannot be read ({error.strerror})") from error


def _damaged(folder: Path, what: str) -> DamagedEpisodeError:
    return DamagedEpisodeError(
        f"Episode {folder.name} is damaged: {what}. Restore {folder} from a copy or remove it; "
        "the other episodes are not affected."
    )


def digest_of(attributes: Mapping[str, Any]) -> str:
    """Checksum of an episode's attributes, without itself."""
    return sha256_bytes(json.dumps(attributes, sort_keys=True, allow_nan=False).encode())
