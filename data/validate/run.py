"""Goes through a data set episode by episode and gathers what every check finds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import DatasetError, StoreError
from data.formats.registry import detect, load
from data.store import EpisodeStore
from data.validate.across import Across
from data.validate.alignment import Alignment
from data.validate.finding import Finding, Report
from data.validate.large import opened
from data.validate.signals import signals
from data.validate.still import check_still
from data.validate.thresholds import Thresholds
from data.validate.times import check_times
from data.validate.values import check_finite, check_saturated
from data.validate.whole import check_whole, unfinished, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from data.features import Features
    from data.records import Episode
    from data.validate.signals import Signal

_UNREADABLE = (DatasetError, StoreError, ValueError, TypeError, KeyError, OSError)
"""What readers raise for broken files."""


type Visit = Callable[[Episode, list[Finding]], None]


def _nothing(episode: Episode, findings: list[Finding]) -> None:
    del episode, findings


class Validator:
    """Checks episodes one after the other; holds none of them.

    Args:
        features: What observations contain, for names and units.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it; None where it is not known.
        thresholds: From where on something counts as wrong.
    """

    def __init__(
        self,
        features: Features,
        action_spec: Mapping[str, Any] | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        self._features = features
        self._action_spec = action_spec
        self._thresholds = thresholds or Thresholds()
        self._across = Across(action_spec, self._thresholds)
        self._alignment = Alignment(features, action_spec, self._thresholds)
        self._findings: list[Finding] = []
        self._episodes = self._steps = 0

    def check(self, episode: Episode, pictures: Sequence[Signal] = ()) -> list[Finding]:
        """Findings about one episode; they are kept for the report too.

        Args:
            episode: The episode.
            pictures: Signals of the cameras that the episode lacks, as `data.validate.large.opened` gives.
        """
        t = self._thresholds
        parts = [*signals(episode, self._features, self._action_spec), *pictures]
        found = [
            *check_whole(episode),
            *check_times(episode, self._action_spec, t),
            *check_finite(episode, parts, self._action_spec),
            *check_still(episode, parts, t),
            *check_saturated(episode, self._action_spec, t),
            *self._alignment.check(episode),
            *self._across.check(episode, parts),
        ]
        self._findings += found
        self._episodes += 1
        self._steps += len(episode)
        return found

    def refused(self, error: Exception, episode: str = "") -> Finding:
        """Count an episode that cannot be read."""
        finding = unreadable(error, episode)
        self._findings.append(finding)
        self._episodes += 1
        return finding

    def add(self, finding: Finding) -> None:
        """Keep a finding that comes from elsewhere."""
        self._findings.append(finding)

    def report(self) -> Report:
        """Everything so far, and what only all episodes together tell."""
        found = self._alignment.lag
        measured = {}
        if found is not None:
            lag, seconds = found
            measured = {"lag_steps": lag.steps, "correlation": lag.correlation}
            if not math.isnan(seconds):
                measured["lag_s"] = lag.steps * seconds
        return Report(
            findings=[*self._findings, *self._across.finish(), *self._alignment.finish()],
            episodes=self._episodes,
            steps=self._steps,
            measured=measured,
        )


def validate(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    thresholds: Thresholds | None = None,
    progress: Callable[[str], None] = lambda _: None,
    visit: Visit = _nothing,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Check a data set of any format that can be read.

    A damaged episode of our own store is reported and the others are checked all the same; readers of other
    formats may end at the first damaged one, and the report says so.

    Args:
        path: The data set.
        format: Its format; recognised when None.
        thresholds: From where on something counts as wrong.
        progress: Called with the id of each episode that was looked at.
        visit: Called with each episode that can be read and what was found in it.
        options: Of the format's reader.

    Returns:
        What was found.

    Raises:
        FileNotFoundError: There is nothing at the path.
        DatasetError: It is of no known format, so that nothing can be said about it.
        ValueError: An option of the reader is unknown or impossible.
        ImportError: A package that reads this format is missing; names the extra.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is nothing at {path}; check the path.")
    name = format or detect(path)
    if name == "zarr":
        return _store(EpisodeStore(path), thresholds, progress, visit)
    try:
        source = load(name).read(path, **(options or {}))
    except (DatasetError, StoreError, OSError) as error:  # a wrong option is the caller's mistake, no finding
        return Report(findings=[unreadable(error)], episodes=0, steps=0)
    validator = Validator(source.features, source.action_spec, thresholds)
    for episode in _readable(source.episodes, validator):
        visit(episode, validator.check(episode))
        progress(episode.id)
    return validator.report()


def _readable(episodes: Iterator[Episode], validator: Validator) -> Iterator[Episode]:
    """Episodes of a reader; what it refuses becomes a finding, until it says the same twice."""
    before = ""
    while True:
        try:
            episode = next(episodes)
        except StopIteration:
            return
        except _UNREADABLE as error:
            if str(error) == before:
                return
            before = str(error)
            validator.refused(error)
            continue
        yield episode


def _store(
    store: EpisodeStore, thresholds: Thresholds | None, progress: Callable[[str], None], visit: Visit
) -> Report:
    validator: Validator | None = None
    waiting: list[tuple[str, StoreError]] = []
    for id_ in store.ids():
        try:
            with opened(store, id_) as (episode, pictures):
                validator = validator or Validator(_declared(store, episode), store.action_spec, thresholds)
                visit(episode, validator.check(episode, pictures))
        except StoreError as error:
            waiting.append((id_, error))
        except KeyError:
            if id_ in store:  # else it was removed meanwhile
                raise
        progress(id_)
    validator = validator or Validator({}, store.action_spec, thresholds)
    for id_, damage in waiting:
        validator.refused(damage, id_)
    for partial in store.partials():
        validator.add(unfinished(partial.id, partial.steps, active=partial.active))
    return validator.report()


def _declared(store: EpisodeStore, episode: Episode) -> Features:
    """Features of a store; found in a readable episode where none were declared."""
    from data.features import from_array

    try:
        return store.features
    except StoreError:
        return {key: from_array(rows[0]) for key, rows in episode.observations.items()}
