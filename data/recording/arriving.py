"""What a recorder watches in the samples that arrive: declared sensors that are missing, and repeats."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import StoreError
from data.features import differences, from_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from data.features import Features
    from data.recording.files import RecordingFiles


def other_width(id_: str, found: int, declared: int | None) -> str:
    """What is said of an episode whose actions have another length than the store declares."""
    return f"Episode {id_} does not fit the store: its actions have {found} numbers; {declared} are declared."


class Declared:
    """Sensors and actions that a store declares, each held to its form when it first comes.

    Args:
        id_: Name of the episode.
        features: What has to be among its observations and streams; anything may be when None.
        width: How many numbers an action has; any when None.
    """

    def __init__(self, id_: str, features: Features | None, width: int | None) -> None:
        self._id = id_
        self._features = features
        self._missing = dict(features or {})
        self._width = width

    def check_observation(self, key: str, value: ArrayLike) -> None:
        """Take note that a sensor came with the steps.

        Raises:
            StoreError: It is not declared where others are, or has another form.
        """
        if self._features is not None and key not in self._features:
            raise StoreError(f"Episode {self._id} does not fit the store: {key!r} is not declared.")
        self.check(key, value)

    def check_action(self, action: ArrayLike) -> None:
        """Compare an action with what the store declares.

        Raises:
            StoreError: It has another length.
        """
        if self._width not in {None, np.size(action)}:
            raise StoreError(other_width(self._id, np.size(action), self._width))

    def check(self, key: str, value: ArrayLike) -> None:
        """Take note that a sensor came.

        Raises:
            StoreError: It is declared, and has another form.
        """
        if key in self._missing:
            found = {key: from_array(np.asarray(value))}
            lines = differences(
                {key: self._missing[key]}, found, expected_by="the store", found_in="the recording"
            )
            if lines:
                raise StoreError(f"Episode {self._id} does not fit the store: " + " ".join(lines))
            del self._missing[key]

    def refuse_missing(self) -> None:
        """Refuse to finish an episode that lacks a declared sensor.

        Raises:
            StoreError: It does; names the sensors.
        """
        if self._missing:
            raise StoreError(
                f"Episode {self._id} does not fit the store: {sorted(self._missing)} never came, neither "
                "with the steps nor as streams. Connect it and record again, or close and recover what came."
            )


class Repeats:
    """Counts pictures equal to the one before, and samples of streams with the time of the one before.

    A sample that is both counts once.

    Args:
        files: Where pictures go, and are compared.
    """

    def __init__(self, files: RecordingFiles) -> None:
        self._files = files
        self._times: dict[str, float] = {}
        self._same_time: dict[str, int] = {}

    @contextmanager
    def sample(self, path: str, time: float) -> Iterator[None]:
        """Around the keeping of one sample of a stream; one that is refused does not count.

        Args:
            path: Of the array that it is a row of.
            time: When it was taken, monotonic s.
        """
        seen = self._files.repeated(path)
        yield
        if self._times.get(path) == time and self._files.repeated(path) == seen:
            self._same_time[path] = self._same_time.get(path, 0) + 1
        self._times[path] = time

    def facts(self) -> dict[str, Any]:
        """What the metadata say of them: ``{"repeated": {path: count}}``, empty when there were none."""
        pictures = self._files.all_repeated()
        paths = dict.fromkeys((*self._same_time, *pictures))
        counts = {path: self._same_time.get(path, 0) + pictures.get(path, 0) for path in paths}
        counts = {path: count for path, count in counts.items() if count}
        return {"repeated": counts} if counts else {}
