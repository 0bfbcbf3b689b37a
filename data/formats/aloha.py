"""Reads ALOHA-style HDF5 files: one file per episode, joint positions of two arms and cameras.

Source of the layout: Zhao et al. 2023, "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware".

A file holds ``action`` (T, A) and ``observations`` with ``qpos``, ``qvel``, ``effort`` (T, S) and
``images/<camera>``: (T, height, width, 3), or JPEG files, as texts (T,) or as (T, L) padded with zeros to the
longest. Their lengths are in ``compress_len`` (cameras, T), whose order of cameras is not recorded; each of
its rows is matched to a camera by the lengths that the pictures themselves show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from data.config import from_dict
from data.errors import DatasetError
from data.features import Feature, from_array
from data.formats import hdf5_file as hdf5
from data.formats.limits import Budget
from data.formats.pictures import decode
from data.formats.recorded import ReadArrays, Rows, by_key, recorded_episode, safe_id, safe_key
from data.formats.registry import Format, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from data.records import Episode

_ARM = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")
JOINTS = tuple(f"{side}_{joint}" for side in ("left", "right") for joint in _ARM)
"""Order of the 14 joints of ALOHA's two arms; a gripper is a normalised opening, 0 to 1."""
_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class ReadAloha(ReadArrays):
    """How ALOHA files are read.

    Attributes:
        jpeg_channels: Order of the channels that the JPEG files hold. A recorder that handed RGB arrays to
            OpenCV's encoder, which expects BGR, has written ``"bgr"``: faces look blue in a viewer.
    """

    jpeg_channels: Literal["rgb", "bgr"] = "rgb"


class Aloha(Format):
    """One file, or a folder of ``episode_<number>.hdf5``."""

    name: ClassVar[str] = "aloha"
    summary: ClassVar[str] = "ALOHA-style HDF5, one file per episode, raw or JPEG pictures (read only)"
    looked_for: ClassVar[str] = "an HDF5 file with action and observations/qpos, or a folder of them"
    reading: ClassVar[type] = ReadAloha

    def matches(self, path: Path) -> bool:
        """Whether the file, or the first in the folder, has ``action`` and ``observations/qpos``."""
        files = _files(path)
        return bool(files) and hdf5.has_at_root(files[0], datasets=("action",), groups=("observations",))

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a file or folder; see `ReadAloha` for the options, and `Format.read`."""
        chosen = from_dict(ReadAloha, options)
        files = _files(path)
        if not files:
            raise DatasetError(f"{path} holds no file that ends in .hdf5 or .h5.")
        features, left_out = _describe(files[0], chosen)
        notes = chosen.notes(times=False, last_observation=False, rewards=False)
        notes += ("The files do not say what actions are; ALOHA's are absolute joint targets, rad.",)
        if left_out:
            notes += (f"Left out, having no row per step: {', '.join(left_out)}.",)
        return Source(
            features, chosen.described_action(), len(files), _episodes(files, features, chosen), notes
        )


def _files(path: Path) -> list[Path]:
    """The file, or those in the folder in the order of their numbers."""
    if path.is_file():
        return [path] if hdf5.is_hdf5(path) else []
    if not path.is_dir():
        return []
    found = [file for file in path.iterdir() if file.suffix in {".hdf5", ".h5"} and file.is_file()]

    def order(file: Path) -> tuple[int, str]:
        number = _NUMBER.search(file.stem)
        return (int(number[1]) if number else -1, file.name)

    return sorted(found, key=order)


def _describe(file: Path, options: ReadAloha) -> tuple[dict[str, Feature], tuple[str, ...]]:
    budget = Budget(options.max_decoded_bytes, str(file))
    with hdf5.open_hdf5(file) as root:
        parts = _Parts(root)
        features = {key: _feature(key, rows[0]) for key, rows in parts.vectors(budget).items()}
        for key, camera in parts.cameras.items():
            features[key] = from_array(parts.pictures(camera, slice(0, 1), budget, options)[0])
        return features, parts.left_out


def _feature(key: str, row: NDArray[Any]) -> Feature:
    names = JOINTS if row.shape == (len(JOINTS),) else ()
    mode = "absolute" if key == "observation.state" else ""
    return Feature(tuple(row.shape), str(row.dtype), names=names, mode=mode)


def _episodes(files: list[Path], features: dict[str, Feature], options: ReadAloha) -> Iterator[Episode]:
    for file in files:
        id_ = safe_id(file.stem)
        budget = Budget(options.max_decoded_bytes, str(file))
        with hdf5.open_hdf5(file) as root:
            parts = _Parts(root)
            observations = parts.vectors(budget)
            for key, camera in parts.cameras.items():
                observations[key] = parts.pictures(camera, slice(0, len(parts)), budget, options)
            found = {key: (rows.shape[1:], str(rows.dtype)) for key, rows in observations.items()}
            if found != {key: (feature.shape, feature.dtype) for key, feature in features.items()}:
                raise DatasetError(
                    f"{file} has {found}, but {files[0].name} has {sorted(features)} of other shapes or "
                    "types. Read files of one kind at a time."
                )
            rows = Rows(
                action=hdf5.numbers(parts.action, budget),
                observations=observations,
                extra={key: hdf5.numbers(dataset, budget) for key, dataset in parts.extra.items()},
                metadata={"file": file.name, "simulated": parts.simulated},
            )
            yield recorded_episode(id_, rows, options)


class _Parts:
    """The datasets of one file, checked against each other."""

    def __init__(self, root: Any) -> None:  # noqa: ANN401 - h5py
        self.place = str(root.filename)
        self.simulated = bool(root.attrs.get("sim", False))
        self.action = hdf5.child(root, "action")
        group = hdf5.child(root, "observations")
        if not hdf5.is_dataset(self.action) or not hdf5.is_group(group):
            raise DatasetError(f"{self.place} has {hdf5.children(root)}; action and observations are needed.")
        hdf5.check_dataset(self.action)
        vectors = {name: hdf5.child(group, name) for name in hdf5.children(group)}
        images = vectors.pop("images", None)
        names = hdf5.children(images) if hdf5.is_group(images) else []
        self._vectors = by_key(vectors, self.place, _key)
        self.cameras = by_key({name: hdf5.child(images, name) for name in names}, self.place, _camera)
        if "observation.state" not in self._vectors:
            raise DatasetError(f"{self.place} lacks observations/qpos; it has {hdf5.children(group)}.")
        for dataset in (*self._vectors.values(), *self.cameras.values()):
            self._check_rows(dataset)
        self._lengths = self._matched_lengths(hdf5.child(root, "compress_len"))
        rest = by_key({n: hdf5.child(root, n) for n in hdf5.children(root) if n not in _KNOWN}, self.place)
        self.extra = {key: node for key, node in rest.items() if hdf5.is_per_step(node, len(self))}
        self.left_out = tuple(sorted(rest.keys() - self.extra.keys()))

    def __len__(self) -> int:
        return int(self.action.shape[0])

    def vectors(self, budget: Budget) -> dict[str, NDArray[Any]]:
        return {key: hdf5.numbers(dataset, budget) for key, dataset in self._vectors.items()}

    def pictures(
        self,
        camera: Any,  # noqa: ANN401 - h5py
        rows: slice,
        budget: Budget,
        options: ReadAloha,
    ) -> NDArray[np.uint8]:
        if camera.ndim == 4:
            return hdf5.numbers(camera, budget, rows)
        decoded = [
            decode(content, budget, f"{self.place}: picture {rows.start + t} of {camera.name}")
            for t, content in enumerate(self._contents(camera, rows, budget))
        ]
        shapes = {picture.shape for picture in decoded}
        if len(shapes) > 1:
            raise DatasetError(f"{self.place}: pictures of {camera.name} differ in size: {sorted(shapes)}.")
        stacked = np.stack(decoded)
        return stacked if options.jpeg_channels == "rgb" else stacked[..., ::-1]

    def _contents(self, camera: Any, rows: slice, budget: Budget) -> list[bytes]:  # noqa: ANN401 - h5py
        """JPEG files of some steps; NumPy has taken the padding off texts already."""
        if camera.ndim == 1:
            return [bytes(row) for row in hdf5.numbers(camera, budget, rows, kinds="S")]
        packed = hdf5.numbers(camera, budget, rows)
        lengths = self._lengths[camera.name][rows]
        return [row[:length].tobytes() for row, length in zip(packed, lengths, strict=True)]

    def _check_rows(self, dataset: Any) -> None:  # noqa: ANN401 - h5py
        picture = "/images/" in dataset.name
        hdf5.check_dataset(dataset, hdf5.NUMBERS + "S" * picture)
        fits = _holds_pictures(dataset) if picture else dataset.ndim == 2
        if not fits or dataset.shape[0] != len(self) or not len(self) or self.action.ndim != 2:
            raise DatasetError(
                f"{self.place}: {dataset.name} is {dataset.dtype}{dataset.shape} beside actions "
                f"{self.action.shape}; (T, S) numbers, (T, height, width, 3), (T, L) uint8 or (T,) texts are "
                "needed, as many rows as actions."
            )

    def _matched_lengths(self, table: Any) -> dict[str, NDArray[np.int64]]:  # noqa: ANN401 - h5py
        """Length of every JPEG file by camera."""
        budget = Budget(1 << 30, self.place)
        packed = {c.name: c for c in self.cameras.values() if c.ndim == 2}
        found = {name: _used_lengths(dataset, budget) for name, dataset in packed.items()}
        if not hdf5.is_dataset(table):
            return found
        rows = list(hdf5.numbers(table, budget))
        lost = [n for n, lengths in found.items() if not any(np.array_equal(lengths, row) for row in rows)]
        if lost:
            raise DatasetError(
                f"{self.place}: compress_len has no row with the lengths of the pictures of {lost}; the file "
                "is damaged or was written in another way."
            )
        return found


_KNOWN = ("action", "observations", "compress_len")
_KEYS = {"qpos": "observation.state", "qvel": "observation.velocity", "effort": "observation.effort"}


def _holds_pictures(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    if dataset.dtype.kind == "S":
        return int(dataset.ndim) == 1
    if dataset.dtype != np.uint8:
        return False
    return dataset.ndim == 2 or (dataset.ndim == 4 and dataset.shape[-1] in {1, 3})


def _camera(name: str) -> str:
    return f"observation.images.{safe_key(name)}"


def _key(name: str) -> str:
    return _KEYS.get(name, f"observation.{safe_key(name)}")


def _used_lengths(dataset: Any, budget: Budget) -> NDArray[np.int64]:  # noqa: ANN401 - h5py
    """Bytes of each row up to the last that is not padding; a JPEG file ends in FF D9, never in zeros."""
    lengths = []
    for t in range(dataset.shape[0]):
        row = hdf5.numbers(dataset, Budget(budget.limit, budget.where), slice(t, t + 1))[0]
        used = np.flatnonzero(row)
        lengths.append(int(used[-1]) + 1 if len(used) else 0)
    return np.array(lengths, np.int64)
