"""The files of a ROS 2 bag: found, checked, and their messages joined in the order of their receive times.

Read with the rosbags package, file by file, after `data.formats.rosbag_check` has looked at each.
"""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from data.errors import DatasetError
from data.formats.extras import require
from data.formats.rosbag_check import MCAP, check_file, unpack_zstd

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import TracebackType
    from typing import Self

_SUFFIXES = (".mcap", ".db3")
_SQLITE = b"SQLite format 3\x00"
_METADATA = "metadata.yaml"
_METADATA_BYTES = 16 << 20


@dataclass(frozen=True)
class Message:
    """One message as recorded.

    Attributes:
        topic: Its topic.
        received_ns: When the recorder got it, ns since 1970-01-01 UTC.
        raw: Its bytes, CDR.
    """

    topic: str
    received_ns: int
    raw: bytes


def looks_like_bag(path: Path) -> bool:
    """Whether this is a bag folder, with ``metadata.yaml`` or without, or one file of a bag."""
    try:
        if path.is_dir():
            described = path / _METADATA
            if described.is_file():
                with described.open("rb") as file:
                    return b"rosbag2_bagfile_information" in file.read(4096)
            return any(child.suffix in _SUFFIXES for child in path.iterdir())
        if not path.is_file():
            return False
        with path.open("rb") as file:
            begin = file.read(16)
        return begin.startswith(MCAP) or (begin == _SQLITE and path.suffix == ".db3")
    except OSError:
        return False


class Bag:
    """An open bag; use it as a context.

    Args:
        path: Bag folder, or one of its files.
        reindex: Read the files of a folder that has no ``metadata.yaml``.
        limit: Greatest size in bytes that one packed part may unfold to.

    Raises:
        DatasetError: A file is missing, cut short or damaged, or packed in a way that is not read.
        ImportError: The rosbags package is missing.
    """

    def __init__(self, path: Path, *, reindex: bool, limit: int) -> None:
        self.place = str(path)
        self._limit = limit
        self._rosbag2 = require("rosbags.rosbag2", "formats", "Reading a ROS 2 bag")
        self._stack = ExitStack()
        self._readers: list[Any] = []
        self.topics: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.notes: tuple[str, ...] = ()
        described = _describe(path, reindex)
        self._packed_messages = described.packed_messages
        try:
            for file in described.files:
                self._open(file)
        except BaseException:
            self._stack.close()
            raise
        self._readers.sort(key=lambda reader: reader.start_time)
        there = sum(self.counts.values())
        if described.count is not None and described.count != there:
            self.notes = (f"metadata.yaml counts {described.count} messages, the files hold {there}.",)

    def __enter__(self) -> Self:
        """The bag itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every file."""
        self._stack.close()

    def messages(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of some topics, of all files together in the order of their receive times.

        Raises:
            DatasetError: A file turns out to be damaged.
        """
        streams = [self._file_messages(reader, topics) for reader in self._readers]
        yield from heapq.merge(*streams, key=lambda message: message.received_ns)

    def _open(self, file: Path) -> None:
        checked = check_file(file, self._limit)
        reader = self._rosbag2.Reader(file)
        try:
            reader.open()
        except Exception as error:  # the package raises what it likes on broken content
            raise _damaged(file, error) from error
        self._stack.callback(reader.close)
        indexed = {chunk.chunk_start_offset for chunk in getattr(reader.storage, "chunks", ())}
        if not indexed <= checked:
            raise _damaged(file, ValueError("its index names chunks that are none"))
        self._readers.append(reader)
        for connection in reader.connections:
            known = self.topics.setdefault(connection.topic, connection.msgtype)
            if known != connection.msgtype:
                raise DatasetError(
                    f"{self.place}: topic {connection.topic} holds both {known} and {connection.msgtype}; "
                    "split the bag first."
                )
            self.counts[connection.topic] += connection.msgcount

    def _file_messages(self, reader: Any, topics: Collection[str]) -> Iterator[Message]:  # noqa: ANN401 - of rosbags
        chosen = [connection for connection in reader.connections if connection.topic in topics]
        if not chosen:
            return
        try:
            for connection, received, raw in reader.messages(chosen):
                yield Message(connection.topic, int(received), self._unpacked(bytes(raw)))
        except DatasetError:
            raise
        except Exception as error:  # as above
            raise _damaged(reader.path, error) from error

    def _unpacked(self, raw: bytes) -> bytes:
        return unpack_zstd(raw, self._limit, self.place) if self._packed_messages else raw


@dataclass(frozen=True)
class _Described:
    files: list[Path]
    packed_messages: bool = False
    count: int | None = None


def _describe(path: Path, reindex: bool) -> _Described:
    """Which files make up the bag."""
    if path.is_file():
        return _Described([path])
    if (path / _METADATA).is_file():
        return _from_metadata(path)
    parts = sorted(child for child in path.iterdir() if child.suffix in _SUFFIXES and child.is_file())
    if not parts:
        raise DatasetError(f"{path} holds neither {_METADATA} nor .mcap or .db3 files; it is no bag.")
    if not reindex:
        raise DatasetError(
            f"{path} has no {_METADATA}: the recorder was stopped before it wrote it. Its {len(parts)} files "
            "can be read all the same: give reindex=True (on the command line --read reindex True; nothing "
            "is changed), or write the file with `ros2 bag reindex`."
        )
    return _Described(parts)


def _from_metadata(path: Path) -> _Described:
    file = path / _METADATA
    if file.stat().st_size > _METADATA_BYTES:
        raise DatasetError(
            f"{file} has {file.stat().st_size} bytes; no bag needs more than {_METADATA_BYTES}."
        )
    yaml = require("ruamel.yaml", "formats", "Reading a ROS 2 bag")
    try:
        info = yaml.YAML(typ="safe", pure=True).load(file.read_text())["rosbag2_bagfile_information"]
        named = [str(name) for name in info["relative_file_paths"]]
        mode = str(info.get("compression_mode") or "").lower()
        packing = str(info.get("compression_format") or "")
        count = int(info["message_count"])
    except Exception as error:  # the parser raises what it likes on broken content
        raise DatasetError(f"{file} cannot be read: {error}. Move it away and give reindex=True.") from error
    if mode == "file":
        raise DatasetError(
            f"{path} is packed file by file; unpack its files with `zstd -d` and correct {_METADATA}."
        )
    if mode not in {"", "none", "message"} or (mode == "message" and packing != "zstd"):
        raise DatasetError(
            f"{path} is packed with {packing!r} by {mode!r}; only messages with zstd are read."
        )
    return _Described([_part(path, name) for name in named], mode == "message", count)


def _part(path: Path, name: str) -> Path:
    """A file that the metadata name; early versions put the bag's own name before it."""
    for candidate in (path / name, path / PurePosixPath(name).name):
        if candidate.is_file() and candidate.resolve().is_relative_to(path.resolve()):
            return candidate
    raise DatasetError(
        f"{path} lacks {name!r}, which its {_METADATA} names. Copy it from the source of the bag."
    )


def _damaged(file: Path, error: Exception) -> DatasetError:
    return DatasetError(
        f"{file} is damaged or no bag: {error or repr(error)}. Copy it again from its source."
    )
