"""Reads and writes robomimic's HDF5 files, with h5py alone.

Source of the layout: Mandlekar et al. 2021, "What Matters in Learning from Offline Human Demonstrations for
Robot Manipulation", and the documentation of its code.

``data/demo_<i>`` holds ``actions`` (T, A), ``rewards``, ``dones`` (T,), ``states`` (T, D), and groups ``obs``
and ``next_obs`` with (T, ...) each; ``mask/<split>`` lists demos; ``env_args`` says how to make the
environment. Files written here have besides, in ``demo_<i>/robot_rl``, what robomimic has no place for: they
read back equal.

What ``dones`` mean depends on how a file was made: success, the end of the recording, or both. See
`ReadRobomimic.dones`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from data.config import from_dict
from data.errors import DatasetError
from data.features import from_json
from data.formats import hdf5_file as hdf5
from data.formats import robomimic_names as names
from data.formats.limits import Budget
from data.formats.registry import Format, Source
from data.formats.robomimic_demo import Demo, ReadRobomimic
from data.formats.robomimic_write import OWN, WriteRobomimic, write_demos

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from data.features import Features
    from data.records import Episode


class Robomimic(Format):
    """A file with a group ``data`` of demos."""

    name: ClassVar[str] = "robomimic"
    summary: ClassVar[str] = "robomimic's HDF5 with env_args, states and splits"
    looked_for: ClassVar[str] = "an HDF5 file with a group data that holds groups demo_<number>"
    reading: ClassVar[type] = ReadRobomimic
    writing: ClassVar[type | None] = WriteRobomimic

    def matches(self, path: Path) -> bool:
        """Whether the file has a group ``data`` at its root."""
        return hdf5.has_at_root(path, groups=("data",))

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a file; see `ReadRobomimic` for the options, and `Format.read`."""
        chosen = from_dict(ReadRobomimic, options)
        with hdf5.open_hdf5(path) as root:
            file = _File(root, chosen)
            notes = file.notes()
            features = file.features()
            spec = file.action_spec()
        return Source(features, spec, len(file.demos), _episodes(path, chosen), notes)

    def write(
        self,
        episodes: Iterable[Episode],
        features: Features,
        action_spec: Mapping[str, Any] | None,
        path: Path,
        **options: Any,  # noqa: ANN401 - as in Format
    ) -> tuple[str, ...]:
        """Write a new file that keeps everything; see `WriteRobomimic`, and `Format.write`."""
        return write_demos(episodes, features, action_spec, path, from_dict(WriteRobomimic, options))


class _File:
    """An open file: its environment, its demos and splits."""

    def __init__(self, root: Any, options: ReadRobomimic) -> None:  # noqa: ANN401 - h5py
        self.place = str(root.filename)
        self._data = hdf5.child(root, "data")
        if not hdf5.is_group(self._data):
            raise DatasetError(f"{self.place} has no group data; it has {hdf5.children(root)}.")
        self.env_args = _json_attribute(self._data, "env_args")
        self._own = _json_attribute(self._data, OWN)
        self.options = _with_environment(options, self.env_args, _json_attribute(self._data, "problem_info"))
        self.splits = _splits(root)
        self.demos = self._demos()

    def demo(self, name: str) -> Demo:
        group = hdf5.child(self._data, name)
        if not hdf5.is_group(group):
            raise DatasetError(f"{self.place}: data/{name} is no group; the file is damaged. Copy it again.")
        return Demo(group, self.options, self.env_args)

    def features(self) -> dict[str, Any]:
        if "features" in self._own:
            return dict(from_json(self._own["features"]))
        demo = self.demo(self.demos[0])
        rows = demo.observations(slice(0, 1), Budget(self.options.max_decoded_bytes, demo.place))
        return {key: names.feature(demo.names[key], value[0], self.env_args) for key, value in rows.items()}

    def action_spec(self) -> dict[str, Any] | None:
        if self.options.action_spec is not None:
            return dict(self.options.action_spec)
        if OWN in self._data.attrs:
            return self._own.get("action_spec")
        return names.action_spec(self.env_args, self.demo(self.demos[0]).width)

    def notes(self) -> tuple[str, ...]:
        demos = [self.demo(name) for name in self.demos]
        foreign = [demo for demo in demos if demo.own is None]
        if not foreign:
            return ()
        complete = all(demo.complete for demo in foreign)
        rewarded = all(demo.rewarded for demo in foreign)
        found = list(self.options.notes(times=False, last_observation=complete, rewards=rewarded))
        early = sum(demo.goes_on_after_done for demo in foreign)
        if early:
            found.append(
                f"{early} demos go on after a done; they are kept whole, only the last step can end."
            )
        left_out = sorted({name for demo in foreign for name in demo.left_out})
        if left_out:
            found.append(f"Left out, having no row per step: {', '.join(left_out)}.")
        if names.action_spec(self.env_args, foreign[0].width) is not None:
            found.append("Actions are the controller's normalised input, -1 to 1; env_args scale it.")
        return tuple(found)

    def _demos(self) -> list[str]:
        there = [
            name for name in hdf5.children(self._data) if name.startswith("demo_") and name[5:].isdecimal()
        ]
        if self.options.split is not None:
            if self.options.split not in self.splits:
                raise DatasetError(
                    f"{self.place} has no split {self.options.split!r}; it has {sorted(self.splits)}."
                )
            lost = sorted(self.splits[self.options.split] - set(there))
            if lost:
                raise DatasetError(
                    f"{self.place}: split {self.options.split!r} names {lost}, which do not exist."
                )
            there = [name for name in there if name in self.splits[self.options.split]]
        if not there:
            raise DatasetError(
                f"{self.place} has no demo_<number> in data; it has {hdf5.children(self._data)[:8]}."
            )
        return sorted(there, key=lambda name: int(name[5:]))


def _episodes(path: Path, options: ReadRobomimic) -> Iterator[Episode]:
    with hdf5.open_hdf5(path) as root:
        file = _File(root, options)
        for name in file.demos:
            splits = sorted(split for split, demos in file.splits.items() if name in demos)
            yield file.demo(name).episode(splits)


def _with_environment(
    options: ReadRobomimic, env_args: Mapping[str, Any], problem: Mapping[str, Any]
) -> ReadRobomimic:
    """Fill in what the file says; LIBERO's files have the task under ``problem_info``."""
    return replace(
        options,
        rate_hz=names.control_rate(env_args) if options.rate_hz is None else options.rate_hz,
        task=options.task or str(problem.get("language_instruction") or names.task_text(env_args)),
        robot=options.robot or names.robot_name(env_args),
    )


def _splits(root: Any) -> dict[str, set[str]]:  # noqa: ANN401 - h5py
    mask = hdf5.child(root, "mask")
    if not hdf5.is_group(mask):
        return {}
    return {name: set(hdf5.texts(hdf5.child(mask, name))) for name in hdf5.children(mask)}


def _json_attribute(group: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 - h5py
    text = hdf5.text_attribute(group, name)
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise DatasetError(f"{group.file.filename}: attribute {name} of data is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{group.file.filename}: attribute {name} of data holds no JSON object.")
    return found
