"""Writes robomimic's HDF5 files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import DatasetError
from data.features import from_array, to_json
from data.formats.compare import refuse_misfit
from data.formats.hdf5_file import h5py_module
from data.formats.robomimic_names import file_name
from data.formats.target import new_target
from data.layout import episode_arrays, episode_facts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from data.features import Features
    from data.records import Episode

OWN = "robot_rl"
"""Group of a demo, and attribute of ``data``, that hold what robomimic has no place for."""
_NAMELESS: Mapping[str, Any] = {"env_name": "robot_rl", "type": 2, "env_kwargs": {}}


@dataclass(frozen=True)
class WriteRobomimic:
    """How a robomimic file is written.

    Attributes:
        env_args: How to make the environment: ``env_name``, ``type`` and ``env_kwargs``. Where not given,
            what the episodes' metadata say under ``env_args``, or else a nameless Gym environment.
        splits: Ids of the episodes of each list under ``mask``, besides those that the episodes' metadata
            name under ``splits``.
        valid_fraction: Share of all episodes to draw for the list ``valid``; the others form ``train``. It
            needs at least two episodes.
        split_seed: Seed of the drawing.
        compression: How pictures are packed.
    """

    env_args: Mapping[str, Any] | None = None
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    valid_fraction: float = 0.0
    split_seed: int = 0
    compression: Literal["none", "gzip"] = "none"

    def __post_init__(self) -> None:
        """Check the share and the splits."""
        if not 0.0 <= self.valid_fraction < 1.0:
            raise ValueError(
                f"valid_fraction is {self.valid_fraction}; 0 up to, not including, 1 is allowed."
            )
        if self.valid_fraction and {"train", "valid"} & self.splits.keys():
            raise ValueError("Give either valid_fraction or the splits train and valid, not both.")
        bad = [name for name in self.splits if not name or "/" in name or name in {".", ".."}]
        if bad:
            raise ValueError(f"Splits {bad} cannot name a list; use plain names such as 'valid'.")


def write_demos(
    episodes: Iterable[Episode],
    features: Features,
    action_spec: Mapping[str, Any] | None,
    path: Path,
    options: WriteRobomimic,
) -> tuple[str, ...]:
    """Write a new file; see `Format.write`.

    ``dones`` are true ends (terminated) only: robomimic's learners do not bootstrap there.
    """
    h5py = h5py_module()
    with new_target(path) as part, h5py.File(part, "w") as file:
        writer = _Writer(file, options)
        for episode in episodes:
            writer.add(episode)
        writer.close(features, action_spec)
    return writer.notes


class _Writer:
    """An open file that grows by episodes."""

    def __init__(self, file: Any, options: WriteRobomimic) -> None:  # noqa: ANN401 - h5py
        self._file, self._options = file, options
        self._data = file.create_group("data")
        self._ids: list[str] = []
        self._splits: dict[str, list[str]] = {}
        self._env_args = options.env_args
        self._form: tuple[Features, int] | None = None
        self._total = 0
        self._not_finite: Counter[str] = Counter()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a learner that reads the file must know, one sentence each."""
        return tuple(
            f"{place} is not a finite number at {steps} steps, as where it was not known; a learner that "
            "uses it becomes NaN without a word."
            for place, steps in self._not_finite.items()
        )

    def add(self, episode: Episode) -> None:
        """Append an episode as the next demo.

        Raises:
            DatasetError: Its id was there before, two of its keys share a name, it is of another
                environment, or has other observations or actions than the first one.
        """
        if episode.id in self._ids:
            raise DatasetError(f"Episode {episode.id} comes twice; ids must differ within a file.")
        self._form = self._form or (
            {key: from_array(rows[0]) for key, rows in episode.observations.items()},
            episode.action.shape[1],
        )
        refuse_misfit(episode, *self._form)
        self._ids.append(episode.id)
        demo = self._data.create_group(f"demo_{len(self._ids) - 1}")
        demo.attrs["num_samples"] = len(episode)
        self._total += len(episode)
        self._take_metadata(episode, demo)
        self._put_observations(episode, demo)
        self._put(demo, "actions", episode.action)
        self._put(demo, "rewards", episode.reward)
        demo["dones"] = episode.terminated.astype(np.int64)
        arrays = {p: a for p, a in episode_arrays(episode).items() if not p.startswith("observations/")}
        if "extra/states" in arrays:
            demo["states"] = arrays.pop("extra/states")
        for place, array in arrays.items():
            demo[f"{OWN}/{place}"] = array
        facts = episode_facts(episode)
        kept = {k: v for k, v in facts["metadata"].items() if k not in {"model_file", "splits"}}
        content = json.dumps(facts | {"metadata": kept}, allow_nan=False).encode()
        demo[f"{OWN}/facts"] = np.frombuffer(content, np.uint8)

    def close(self, features: Features, action_spec: Mapping[str, Any] | None) -> None:
        """Write the splits and what the file says as a whole.

        Raises:
            DatasetError: There was no episode, or a split names one that was not written.
        """
        if not self._ids:
            raise DatasetError("There is no episode to write; a robomimic file needs at least one.")
        self._data.attrs["total"] = self._total
        self._data.attrs["env_args"] = json.dumps(self._env_args, indent=4)
        spec = None if action_spec is None else dict(action_spec)
        self._data.attrs[OWN] = json.dumps({"features": to_json(features), "action_spec": spec})
        for name, ids in self._all_splits().items():
            lost = sorted(set(ids) - set(self._ids))
            if lost:
                raise DatasetError(f"Split {name!r} names {lost}, which were not written.")
            demos = [f"demo_{i}" for i, id_ in enumerate(self._ids) if id_ in set(ids)]
            self._file[f"mask/{name}"] = np.array(demos, dtype="S")

    def _take_metadata(self, episode: Episode, demo: Any) -> None:  # noqa: ANN401 - h5py
        for split in episode.metadata.get("splits", ()):
            self._splits.setdefault(str(split), []).append(episode.id)
        if "model_file" in episode.metadata:
            demo.attrs["model_file"] = str(episode.metadata["model_file"])
        env_args = episode.metadata.get("env_args", _NAMELESS)
        if self._env_args is None:
            self._env_args = env_args
        elif self._options.env_args is None and env_args != self._env_args:
            raise DatasetError(
                f"Episode {episode.id} is of another environment than those before; a robomimic file "
                "holds one. Write them to different files, or say env_args for all."
            )

    def _put_observations(self, episode: Episode, demo: Any) -> None:  # noqa: ANN401 - h5py
        names = {key: file_name(key) for key in episode.observations}
        if len(set(names.values())) < len(names) or not names or any("/" in name for name in names.values()):
            raise DatasetError(f"Episode {episode.id}: its keys would be named {names}; all must differ.")
        for key, rows in episode.observations.items():
            picture = rows.dtype == np.uint8 and rows.ndim == 4
            packing = {"compression": "gzip", "compression_opts": 1, "chunks": (1, *rows.shape[1:])}
            settings = packing if picture and self._options.compression == "gzip" else {}
            for group, part in (("obs", rows[:-1]), ("next_obs", rows[1:])):
                self._put(demo, f"{group}/{names[key]}", part, **settings).attrs["key"] = key

    def _put(self, demo: Any, place: str, rows: NDArray[Any], **settings: Any) -> Any:  # noqa: ANN401 - h5py
        """Write what robomimic reads, (T, ...), and count the rows that are not finite."""
        if rows.dtype.kind == "f":
            lost = int((~np.isfinite(rows.reshape(len(rows), -1))).any(axis=1).sum())
            self._not_finite.update({place: lost} if lost else {})
        return demo.create_dataset(place, data=rows, **settings)

    def _all_splits(self) -> dict[str, list[str]]:
        found = {name: list(ids) for name, ids in self._options.splits.items()}
        for name, ids in self._splits.items():
            found.setdefault(name, []).extend(ids)
        if not self._options.valid_fraction:
            return found
        count = len(self._ids)
        if count < 2:
            raise DatasetError("valid_fraction needs at least two episodes; this is one.")
        chosen = max(1, min(count - 1, round(self._options.valid_fraction * count)))
        order = np.random.default_rng(self._options.split_seed).permutation(count)
        drawn = {"valid": order[:chosen], "train": order[chosen:]}
        return found | {name: [self._ids[i] for i in places] for name, places in drawn.items()}
