"""Writes the files of a recording; `unfinished` reads them."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from data.images import PictureCodec, is_picture
from data.layout import chunk_arrays, step_arrays, stream_arrays
from data.manifest import sha256_bytes, sync_folder
from data.picture_files import PictureWriter
from data.recording.unfinished import JOURNAL, journal_line
from data.zarr_files import ArrayMeta, ZarrFileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from data.piece import Piece


class RecordingFiles:
    """The journal, a file of new rows per flush, and a growing file per camera.

    Args:
        folder: Existing folder of the recording.
        pictures: How pictures are stored.
        durable: Whether a flush waits for the disk itself.

    Raises:
        OSError: From any method: something cannot be written.
    """

    def __init__(self, folder: Path, pictures: PictureCodec, *, durable: bool) -> None:
        self.folder = folder
        self._codec = pictures
        self._durable = durable
        self._pictures: dict[str, PictureWriter] = {}
        self._plain: set[str] = set()
        self._segments = 0

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the journal; the first holds the facts that are known from the start."""
        with (self.folder / JOURNAL).open("ab") as journal:
            journal.write(journal_line(entry))
            if self._durable:
                journal.flush()
                os.fsync(journal.fileno())
                sync_folder(self.folder)

    def keep(self, path: str, value: ArrayLike) -> ArrayLike:
        """Put a picture into the file of its camera.

        Args:
            path: Of the array that it is a row of.
            value: A picture or something else.

        Returns:
            Where the picture was put, as a row of the table of places; the value itself if it is none.

        Raises:
            ValueError: It has another shape than the pictures before, or is of a type that is not stored.
        """
        array = np.asarray(value)
        if path in self._plain or (path not in self._pictures and not is_picture(array)):
            if path not in self._plain:
                self.refuse_type(array)
                self._plain.add(path)
            return array  # a picture too, where the first was none: whoever collects them refuses it
        if path not in self._pictures:
            file = self.folder / f"pictures-{len(self._pictures):03d}"
            self._pictures[path] = PictureWriter(file, self._codec.fitting(array.shape), array.shape)
        return self._pictures[path].add(array)

    @staticmethod
    def refuse_type(sample: NDArray[Any]) -> None:
        """Refuse at once what could not be stored when the episode is finished.

        Raises:
            ValueError: It is no array of plain numbers, or a larger one than is stored.
        """
        try:
            ArrayMeta.of(sample[np.newaxis], 1)
        except ZarrFileError as error:
            raise ValueError(f"cannot be stored: {str(error).rstrip('.')}") from error

    def repeated(self, path: str) -> int:
        """How many pictures of an array were equal to the one before them."""
        return self._pictures[path].repeated if path in self._pictures else 0

    def all_repeated(self) -> dict[str, int]:
        """The same for all arrays of pictures."""
        return {path: writer.repeated for path, writer in self._pictures.items()}

    def flush(self, piece: Piece, facts: Mapping[str, Any]) -> None:
        """Write new rows, and the line of the journal that says that all up to here is whole."""
        if self._durable:
            for writer in self._pictures.values():
                writer.sync()
        content = _segment(piece)
        name = f"segment-{self._segments:06d}.npz"
        with (self.folder / name).open("xb") as file:
            file.write(content)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        self.journal(
            {"segment": name, "sha256": sha256_bytes(content), **facts, **self._events_and_places(piece)}
        )
        self._segments += 1

    def close(self) -> None:
        """Close the files."""
        for writer in self._pictures.values():
            writer.close()

    def _events_and_places(self, piece: Piece) -> dict[str, Any]:
        places = {path: writer.place() for path, writer in self._pictures.items()}
        return {
            "events": [event.to_json() for event in piece.events],
            "pictures": {path: place for path, (place, _) in places.items()},
            "sizes": {place["file"]: size for place, size in places.values()},
        }


def _segment(piece: Piece) -> bytes:
    arrays = {f"observations/{key}": rows for key, rows in piece.observations.items()}
    if piece.steps:
        arrays |= step_arrays(piece.columns)
    arrays |= {f"extra/{key}": rows for key, rows in piece.extra.items()}
    arrays |= chunk_arrays(piece.chunks) | stream_arrays(piece.streams)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
