"""What lies on disk of an episode that is not finished, and how it becomes one.

A recording is a journal, a file of the new rows per flush, and a growing file per camera. A line of the
journal says that everything up to it is whole; what lies beyond the last line is not counted. Each line ends
with its own checksum; lines of earlier releases have none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import StoreError
from data.folder_writer import FolderWriter
from data.images import PictureCodec, PictureError
from data.manifest import sha256_bytes
from data.picture_files import Pictures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

JOURNAL = "journal.jsonl"
_ENTRY = frozenset(("segment", "sha256", "steps", "metadata"))
"""What every line of a journal but the first holds at least."""
_FILE = re.compile(r"segment-\d{6}\.npz|pictures-\d{3}")


@dataclass(frozen=True)
class Recording:
    """The part of an unfinished episode that can be relied on.

    Attributes:
        folder: Where.
        facts: What is known of it; empty when its writer died before the first step.
        segments: Files that were written whole and are unchanged, in order.
        steps: Steps in them.
        pictures: File, codec and (height, width, channels) of each camera, by the path of its array.
        because: Why it ends here, when something after it is damaged or missing.
    """

    folder: Path
    facts: Mapping[str, Any]
    segments: tuple[str, ...]
    steps: int
    pictures: Mapping[str, Mapping[str, Any]]
    because: str = ""

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """Read the journal up to the last entry whose files are there, whole and unchanged."""
        lines, because = _journal(folder)
        facts, *entries = lines or [{}]
        found = cls(folder, facts, (), 0, {}, because)
        events: list[Any] = []
        for entry in entries:
            name = str(entry["segment"])
            if not _plain_file(folder, name) or sha256_bytes((folder / name).read_bytes()) != entry["sha256"]:
                return replace(found, because=f"{name} is missing or was changed")
            if short := _missing_pictures(folder, entry):
                return replace(found, because=f"{short} is missing or too short")
            events += entry.get("events", [])
            known = {**found.facts, "metadata": entry["metadata"], "events": list(events)}
            segments = (*found.segments, name)
            found = cls(folder, known, segments, int(entry["steps"]), entry.get("pictures", {}), because)
        return found

    def verified(self) -> Recording:
        """The part of it in which every picture is unchanged too; all are read."""
        for count, name in enumerate(self.segments):
            if not all(self._pictures_are_whole(name, path) for path in self.pictures):
                return self._first(count)
        return self

    def holding(self, steps: int) -> Recording:
        """The same, if it holds so many steps.

        Raises:
            StoreError: It does not: something else than its recorder changed it.
        """
        if self.steps != steps:
            raise StoreError(
                f"Episode {self.folder.name}: {self.steps} of {steps} steps are whole on disk, since "
                f"something else changed its files{self.because and ': '}{self.because}. "
                "Recover or discard it."
            )
        return self

    def write_episode(self, target: Path, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Stream the recording into the final arrays of an episode in a new folder.

        Raises:
            OSError: The folder cannot be written, or the disk is full.
        """
        lengths: dict[str, int] = {}
        for name in self.segments:
            for path, rows in self._segment(name).items():
                lengths[path] = lengths.get(path, 0) + len(rows)
        writer = FolderWriter(target, durable=durable)
        for path, length in lengths.items():
            if path in self.pictures:
                self._adopt(writer, path)
            else:
                writer.array(path, self._parts(path), length)
        writer.finish({**facts, "steps": self.steps})

    def _adopt(self, writer: FolderWriter, path: str) -> None:
        known = self.pictures[path]
        codec = PictureCodec.from_json(known["codec"])
        shape = tuple(known["shape"])
        table = np.concatenate(list(self._parts(path)))
        source = self.folder / known["file"]
        if codec.kind == "av1":
            with Pictures(source, codec, shape, table) as found:
                writer.video(path, codec, found.shape, (found[row] for row in range(len(found))))
            return
        try:
            os.link(source, writer.place(path, codec))
        except OSError:  # a file system without links
            shutil.copyfile(source, writer.place(path, codec))
        writer.pictures(path, codec, shape, table)

    def _first(self, count: int) -> Recording:
        """The first segments; what is known of it is what was known then."""
        facts, *entries = _journal(self.folder)[0][: count + 1]
        events = [event for entry in entries for event in entry.get("events", [])]
        if entries:
            facts = {**facts, "metadata": entries[-1]["metadata"], "events": events}
        steps = int(entries[-1]["steps"]) if entries else 0
        return replace(self, facts=facts, segments=self.segments[:count], steps=steps)

    def _pictures_are_whole(self, segment: str, path: str) -> bool:
        table = self._segment(segment).get(path)
        if table is None or not len(table):
            return True
        known = self.pictures[path]
        codec = PictureCodec.from_json(known["codec"])
        try:
            with Pictures(self.folder / known["file"], codec, tuple(known["shape"]), table) as pictures:
                for row in range(len(table)):
                    pictures[row]
        except (PictureError, OSError):
            return False
        return True

    def _segment(self, name: str) -> dict[str, NDArray[Any]]:
        with np.load(self.folder / name, allow_pickle=False) as segment:
            return {path: segment[path] for path in segment.files}

    def _parts(self, path: str) -> Iterator[NDArray[Any]]:
        for name in self.segments:
            with np.load(self.folder / name, allow_pickle=False) as segment:
                if path in segment.files:
                    yield segment[path]


def journal_line(entry: Mapping[str, Any]) -> bytes:
    """A line of a journal: JSON, a tab, and the SHA-256 of the JSON."""
    content = json.dumps(entry).encode()
    return content + b"\t" + sha256_bytes(content).encode() + b"\n"


def _journal(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Entries up to the first that is damaged, and what is wrong there; the first entry holds the facts."""
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")[:-1]  # a line without its end was cut off
    except OSError as error:
        return [], f"its journal cannot be read ({error.strerror})"
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        entry = _entry(line)
        if entry is None or (entries and not entry.keys() >= _ENTRY):
            return entries, f"line {number} of its journal is damaged"
        entries.append(entry)
    return entries, ""


def _entry(line: bytes) -> dict[str, Any] | None:
    """What a line of a journal holds; None when it is damaged."""
    content, tab, checksum = line.partition(b"\t")  # JSON on one line has no tab of its own
    if tab and checksum.decode("ascii", "replace") != sha256_bytes(content):
        return None
    try:
        entry = json.loads(content)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _missing_pictures(folder: Path, entry: Mapping[str, Any]) -> str:
    """Name of the first file of pictures that holds less than the journal says; empty when all are there."""
    sizes = entry.get("sizes", {})
    for known in entry.get("pictures", {}).values():
        name = str(known["file"])
        if name not in sizes or not _plain_file(folder, name) or (folder / name).stat().st_size < sizes[name]:
            return name
    return ""


def _plain_file(folder: Path, name: str) -> bool:
    """Whether it is one of the files that a recorder makes: finishing an episode writes to some of them."""
    path = folder / name
    return bool(_FILE.fullmatch(name)) and path.is_file() and not path.is_symlink()
