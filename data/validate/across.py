"""Checks that need all episodes: constant dimensions, features that differ, sensors dead in one episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import differences
from data.validate.finding import Finding, Kind, Severity
from data.validate.signals import action_names, per_dimension

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from data.features import Feature
    from data.records import Episode
    from data.validate.signals import Signal
    from data.validate.thresholds import Thresholds

_TOUCH = ("tactile", "wrench", "force", "effort")


class _Moments:
    """Mean, deviation and greatest size of each dimension, gathered piece by piece (Chan et al. 1979)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)
        self.size = np.zeros(size)

    def add(self, rows: NDArray[np.float64]) -> None:
        count, mean = len(rows), rows.mean(0)
        step, total = mean - self.mean, self.count + count
        self.squares += ((rows - mean) ** 2).sum(0) + step**2 * self.count * count / total
        self.mean += step * count / total
        self.size = np.maximum(self.size, np.abs(rows).max(0))
        self.count = total

    @property
    def std(self) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(self.squares / max(self.count, 1)))


class Across:
    """Gathers what can be judged only when every episode was seen.

    Args:
        action_spec: What the action means.
        thresholds: From where on something counts as wrong.
    """

    def __init__(self, action_spec: Mapping[str, Any] | None, thresholds: Thresholds) -> None:
        self._action_spec = action_spec
        self._thresholds = thresholds
        self._moments: dict[str, _Moments] = {}
        self._features: dict[str, Feature] = {}
        self._still: dict[str, list[str]] = {}
        self._moving: set[str] = set()
        self._first: tuple[str, dict[str, Feature]] | None = None

    def check(self, episode: Episode, parts: Sequence[Signal]) -> Iterator[Finding]:
        """Take one episode in; says at once where its features are others than those of the first."""
        forms = {part.key: part.feature for part in parts}
        if self._first is None:
            self._first = (episode.id, forms)
        else:
            yield from self._compare(episode.id, forms)
        for part in parts:
            if part.vector:
                self._add(part)
            if len(part.rows) > self._thresholds.frozen_samples:
                if part.changed.any():
                    self._moving.add(part.key)
                else:
                    self._still.setdefault(part.key, []).append(episode.id)

    def finish(self) -> Iterator[Finding]:
        """What holds for all episodes together."""
        yield from self._dead()
        for key, moments in self._moments.items():
            if moments.count > 1:
                yield from self._constant(key, moments)

    def _compare(self, id_: str, forms: Mapping[str, Feature]) -> Iterator[Finding]:
        first, expected = self._first or ("", {})
        lines = differences(expected, forms, expected_by=f"episode {first}", found_in=f"episode {id_}")
        lines += [f"{key!r} is new." for key in sorted(forms.keys() - expected.keys())]
        if lines:
            text = " ".join(lines) + " Episodes of one set need the same features; keep these apart."
            yield Finding(kind=Kind.FEATURES, severity=Severity.ERROR, message=text, episode=id_)

    def _add(self, part: Signal) -> None:
        rows = part.flat[np.isfinite(part.flat).all(1)]
        moments = self._moments.setdefault(part.key, _Moments(part.flat.shape[1]))
        self._features.setdefault(part.key, part.feature)
        if len(rows) and rows.shape[1] == len(moments.mean):
            moments.add(rows)

    def _dead(self) -> Iterator[Finding]:
        """Pictures, grids and vectors that never change in an episode."""
        for key, ids in self._still.items():
            if key in self._moments and key not in self._moving:
                continue  # a goal or a calibration: constant in every episode, judged by dimension
            touch = any(word in key for word in _TOUCH)
            if key in self._moving and touch:
                continue  # nothing was touched in that episode
            text = (
                "Never changes in this episode"
                + (", though it does in others" if key in self._moving else "")
            ) + ". Check the sensor; leave the episode or the feature out."
            for id_ in ids:
                severity = Severity.WARNING
                yield Finding(kind=Kind.FROZEN, severity=severity, message=text, episode=id_, feature=key)

    def _constant(self, key: str, moments: _Moments) -> Iterator[Finding]:
        t, feature, std = self._thresholds, self._features[key], moments.std
        floor = np.maximum(t.constant_floor, t.constant * moments.size)
        if feature.unit or _suffixes(feature) == 1:
            floor = np.maximum(floor, t.constant_beside * std.max())
        for index in np.flatnonzero(std < floor):
            name = feature.dimension(int(index))
            expected = "gripper" in name and not self._moves_gripper()
            hint = (
                "No action moves it, so this is as it should be."
                if expected
                else "A normaliser would divide by next to nothing; leave it out or record it moving."
            )
            text = (
                f"(Nearly) constant: {moments.mean[index]:.6g} with a deviation of {std[index]:.2g}. {hint}"
            )
            yield Finding(
                kind=Kind.CONSTANT,
                severity=Severity.NOTE if expected else Severity.WARNING,
                message=text,
                feature=key,
                dimension=name,
            )

    def _moves_gripper(self) -> bool:
        named = any("gripper" in name for name in action_names(self._action_spec))
        return named or "gripper" in per_dimension(self._action_spec, "kind") or not self._action_spec


def _suffixes(feature: Feature) -> int:
    """Number of different endings such as ``.pos`` among the names; 0 where there are none."""
    if not feature.names or not all("." in name for name in feature.names):
        return 0
    return len({name.rpartition(".")[2] for name in feature.names})
