"""Writes one episode as a folder; `data.episode_folder` says what is in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from data.episode_folder import EACH, FORMAT, GROUP_FILE, VERSION, digest_of, groups_of, picture_file
from data.layout import column_names
from data.manifest import sha256_bytes, sha256_file, sync_folder
from data.picture_files import PictureWriter, checksums_to_text, shard_index
from data.picture_video import encode_av1
from data.zarr_files import ArrayMeta, group_bytes, pictures_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from data.images import PictureCodec


class FolderWriter:
    """Writes the arrays and then the attributes of one episode into a new folder.

    Args:
        folder: Where; created here, must not exist. Its name is the id of the episode.
        durable: Whether `finish` waits until the disk itself has every file.

    Raises:
        OSError: From any method: the folder cannot be written, or the disk is full.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder = folder
        self._durable = durable
        self._files: dict[str, list[int | str]] = {}
        self._pictures: dict[str, dict[str, Any]] = {}
        self._made: set[str] = set()
        folder.mkdir(parents=True)

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

    def encode(self, path: str, rows: NDArray[Any], codec: PictureCodec) -> None:
        """Write (N, height, width, channels) pictures."""
        codec = codec.fitting(rows.shape[1:])
        if codec.kind == "av1":
            self.video(path, codec, rows.shape, rows)
            return
        writer = PictureWriter(self.place(path, codec), codec, rows.shape[1:])
        table = np.array([writer.add(picture) for picture in rows], np.int64)
        writer.close()
        self.pictures(path, codec, rows.shape[1:], table)

    def video(
        self,
        path: str,
        codec: PictureCodec,
        shape: tuple[int, ...],
        pictures: Iterable[NDArray[np.uint8]],
    ) -> None:
        """Write (N, height, width, channels) pictures, which come one by one, as a video."""
        file = self.place(path, codec)
        encode_av1(file, pictures, shape[1:], codec.quality)
        size = file.stat().st_size
        self._files[picture_file(path, codec)] = [size, sha256_file(file)]
        self._put(f"{path}/bytes/{GROUP_FILE}", ArrayMeta((size,), size, "uint8").to_bytes())
        self._pictures[path] = {"shape": list(shape), "codec": codec.to_json()}

    def place(self, path: str, codec: PictureCodec) -> Path:
        """Where a file of pictures belongs; its folder is made."""
        name = picture_file(path, codec)
        self._make(name.rpartition("/")[0])
        return self._folder / name

    def pictures(
        self, path: str, codec: PictureCodec, shape: tuple[int, ...], table: NDArray[np.int64]
    ) -> None:
        """Make an array of a file of pictures that lies at its place.

        Args:
            path: Where in the group, such as ``"observations/observation.images.wrist"``.
            codec: Lossless or JPEG.
            shape: (height, width, channels).
            table: (N, 3), place of each picture as `PictureWriter.add` gave it.
        """
        name = picture_file(path, codec)
        end = int((table[:, 0] + table[:, 1]).max(initial=0))
        with (self._folder / name).open("r+b") as file:
            file.truncate(end)
            if codec.kind == "lossless":
                file.seek(end)
                end += file.write(shard_index(table))
        self._files[name] = [end, EACH]
        full = (len(table), *shape)
        if codec.kind == "lossless":
            self._put(f"{path}/{GROUP_FILE}", pictures_bytes(full))
        else:
            self.array(f"{path}/frames", [table], len(table))
            self._put(f"{path}/bytes/{GROUP_FILE}", ArrayMeta((end,), max(1, end), "uint8").to_bytes())
        self._pictures[path] = {"shape": list(full), "codec": codec.to_json()}
        if codec.kind == "lossless":  # whose index in the file knows places only
            self._pictures[path]["crc32c"] = checksums_to_text(table)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the attributes, which make the folder an episode.

        Raises:
            ValueError: A fact holds NaN or infinity.
            TypeError: A fact is not JSON.
        """
        for group in sorted(groups_of(self._files)):
            self._put(f"{group}/{GROUP_FILE}", group_bytes({}))
        attributes = {"format": FORMAT, "version": VERSION, **facts, "columns": column_names()}
        attributes |= {"pictures": self._pictures, "files": self._files}
        content = group_bytes({**attributes, "sha256": digest_of(attributes)})
        (self._folder / GROUP_FILE).write_bytes(content)
        if self._durable:
            self._sync()

    def _sync(self) -> None:
        for path in (*self._files, GROUP_FILE):
            with (self._folder / path).open("rb") as file:
                os.fsync(file.fileno())
        for folder in sorted(groups_of(f"{made}/array/file" for made in self._made)):
            sync_folder(self._folder / folder)
        sync_folder(self._folder)

    def _chunk(self, path: str, meta: ArrayMeta, index: int, rows: NDArray[Any]) -> None:
        names = meta.chunk_names
        if index < len(names):
            self._put(f"{path}/{names[index]}", meta.encode(rows))

    def _put(self, path: str, content: bytes) -> None:
        self._make(path.rpartition("/")[0])
        (self._folder / path).write_bytes(content)
        self._files[path] = [len(content), sha256_bytes(content)]

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
