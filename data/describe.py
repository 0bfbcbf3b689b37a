"""What a data set holds: how much, how it ended, who acted, what each observation and action is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import StoreError
from data.features import Feature, from_array, to_json
from data.formats.registry import detect, load
from data.store import EpisodeStore
from data.validate.signals import period

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from data.records import Episode


@dataclass
class Description:
    """What was counted.

    Attributes:
        path: The data set.
        format: Its format.
        bytes: Size on disk.
        episodes: How many were read.
        steps: Steps of all.
        seconds: Time from the first to the last step, all episodes together.
        outcomes: Episodes by outcome.
        tasks: Episodes by task.
        robots: Episodes by robot.
        operators: Episodes by operator.
        sources: Steps by who acted.
        events: Events by kind.
        segments: Human segments by kind.
        features: What observations contain.
        streams: What streams contain, and the usual rate of the first one of each, Hz.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it; None where that is not known.
        damaged: What is wrong with each episode that cannot be read.
        partial: Steps of each recording that was not finished.
        notes: What the reader assumed or could not keep.
    """

    path: Path
    format: str
    bytes: int
    features: dict[str, Feature] = field(default_factory=dict)
    action_spec: dict[str, Any] | None = None
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    robots: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    streams: dict[str, tuple[Feature, float]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    partial: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def add(self, episode: Episode) -> None:
        """Count one episode."""
        self.episodes += 1
        self.steps += len(episode)
        self.seconds += float(episode.monotonic_time[-1] - episode.monotonic_time[0])
        self.outcomes[str(episode.outcome)] += 1
        self.tasks[episode.task] += 1
        self.robots[episode.robot] += 1
        self.operators[episode.operator] += 1
        self.sources.update(str(source) for source in episode.source)
        self.events.update(str(event.kind) for event in episode.events)
        human = zip(episode.segment_id.tolist(), episode.segment_kind.tolist(), strict=True)
        self.segments.update(kind for _, kind in set(human) if kind != "none")
        for key, stream in episode.streams.items():
            if key not in self.streams and len(stream) > 1:
                usual = period(stream.times)
                feature = stream.feature or from_array(stream.values[0])
                self.streams[key] = (feature, 1 / usual if usual > 0 else 0.0)
        if not self.features:
            self.features = {key: from_array(rows[0]) for key, rows in episode.observations.items()}

    def to_json(self) -> dict[str, Any]:
        """The description with JSON types only."""
        counters = ("outcomes", "tasks", "robots", "operators", "sources", "segments", "events")
        plain = ("format", "bytes", "episodes", "steps", "seconds", "action_spec", "damaged", "partial")
        return {
            "path": str(self.path),
            **{name: getattr(self, name) for name in plain},
            **{name: dict(getattr(self, name)) for name in counters},
            "features": to_json(self.features),
            "streams": {
                key: {**to_json({key: feature})[key], "rate_hz": rate}
                for key, (feature, rate) in self.streams.items()
            },
            "notes": list(self.notes),
        }


def describe(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    progress: Callable[[str], None] = lambda _: None,
    options: Mapping[str, Any] | None = None,
) -> Description:
    """Read a data set of any format and count what it holds.

    Args:
        path: The data set.
        format: Its format; recognised when None.
        progress: Called with the id of each episode.
        options: Of the format's reader.

    Raises:
        FileNotFoundError: There is nothing at the path.
        DatasetError: It cannot be read. Damaged episodes of our own store are only listed.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is nothing at {path}; check the path.")
    name = format or detect(path)
    found = Description(path, name, size_of([path]))
    if name == "zarr":
        _from_store(found, EpisodeStore(path), progress)
        return found
    source = load(name).read(path, **(options or {}))
    found.features, found.action_spec, found.notes = dict(source.features), source.action_spec, source.notes
    for episode in source.episodes:
        found.add(episode)
        progress(episode.id)
    return found


def _from_store(found: Description, store: EpisodeStore, progress: Callable[[str], None]) -> None:
    for id_ in store.ids():
        try:
            found.add(store.read(id_, pictures=False))
        except KeyError:  # removed meanwhile
            continue
        except StoreError as error:
            found.damaged[id_] = str(error)
        progress(id_)
    try:
        found.features = dict(store.features)
    except StoreError as error:  # none are declared and the first episode is damaged
        found.notes = (f"Features are those of the readable episodes, without pictures: {error}",)
    found.action_spec = store.action_spec
    found.partial = {partial.id: partial.steps for partial in store.partials()}


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of files, and of everything in folders."""
    files = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file())
