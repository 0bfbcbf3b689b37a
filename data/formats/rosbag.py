"""Reads ROS 2 bags (MCAP or SQLite): each mapped topic a stream at its own rate, each command a step.

A step is a message of the control topic; its observations are the newest messages that were there by then,
never later ones. The last command only tells when the last observation was; commands before the first message
of every sensor have no observation. Both are counted in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from data.config import from_dict
from data.errors import DatasetError
from data.formats.limits import MAX_DECODED_BYTES, Budget
from data.formats.recorded import ReadArrays, Rows, recorded_episode, safe_id
from data.formats.registry import Format, Source
from data.formats.rosbag_files import Bag, looks_like_bag
from data.formats.rosbag_mapping import BagMapping, Topic, load_mapping
from data.formats.rosbag_messages import Decoder
from data.streams import Stream

if TYPE_CHECKING:
    from data.features import Feature
    from data.records import Episode

_PICTURES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
_NS = 1e-9


@dataclass(frozen=True)
class ReadRosbag:
    """How a bag is read.

    Attributes:
        mapping: Path of the mapping file, or its content; see `data.formats.rosbag_mapping.BagMapping`.
        reindex: Read the files of a folder without ``metadata.yaml``; the folder stays as it is.
        max_decoded_bytes: Greatest size of the whole bag in memory.
    """

    mapping: Path | Mapping[str, Any] | None = None
    reindex: bool = False
    max_decoded_bytes: int = MAX_DECODED_BYTES

    def __post_init__(self) -> None:
        """Check the limit."""
        Budget(self.max_decoded_bytes, "options")


class Rosbag(Format):
    """A bag folder, or a single ``.mcap`` or ``.db3`` file."""

    name: ClassVar[str] = "rosbag"
    summary: ClassVar[str] = "ROS 2 bag, MCAP or SQLite, by a topic mapping file (read only)"
    looked_for: ClassVar[str] = (
        "a folder with metadata.yaml of rosbag2 or .mcap or .db3 files, or such a file"
    )
    reading: ClassVar[type] = ReadRosbag

    def matches(self, path: Path) -> bool:
        """Whether it is a bag folder or a file of one."""
        return looks_like_bag(path)

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Read a bag as one episode; see `ReadRosbag` for the options, and `Format.read`."""
        chosen = from_dict(ReadRosbag, options)
        with Bag(path, reindex=chosen.reindex, limit=chosen.max_decoded_bytes) as bag:
            mapping = load_mapping(chosen.mapping, bag.topics)
            recording = _Recording(bag, mapping, Budget(chosen.max_decoded_bytes, str(path)))
            episode = recording.episode(safe_id(path.stem))
        spec = None if mapping.action_spec is None else dict(mapping.action_spec)
        return Source(recording.features, spec, 1, iter([episode]), recording.notes)


@dataclass
class _Track:
    """What one key got from its topic: times in ns of the declared clock, and the arrays."""

    topic: Topic
    decoder: Decoder
    later: bool
    stamps: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    values: list[NDArray[Any]] = field(default_factory=list)
    rows: dict[int, NDArray[Any]] = field(default_factory=dict)

    def add(self, raw: bytes, received: int, clock: str, budget: Budget) -> None:
        message = self.decoder.message(raw)
        stamp = received if clock == "receive" else self.decoder.stamp_ns(message)
        if not self.later:
            value = self.decoder.value(message, budget)
            if value is None:
                return
            self.values.append(value)
        self.stamps.append(stamp)
        self.received.append(received)

    def seconds(self, origin: int) -> NDArray[np.float64]:
        return np.asarray((np.array(self.stamps, np.int64) - origin) * _NS, np.float64)

    def wall(self) -> NDArray[np.float64]:
        return np.asarray(np.array(self.stamps, np.int64) * _NS, np.float64)

    def newest(self, origin: int, moments: NDArray[np.float64]) -> NDArray[np.int64]:
        times = self.seconds(origin)
        return Stream(times, times, np.zeros(len(times))).latest_before(moments)

    def at(self, index: NDArray[np.int64]) -> NDArray[Any]:
        source: Any = self.rows if self.later else self.values
        return np.stack([source[int(i)] for i in index])


class _Recording:
    """A bag read by a mapping."""

    def __init__(self, bag: Bag, mapping: BagMapping, budget: Budget) -> None:
        self._bag, self._mapping, self._budget = bag, mapping, budget
        self._tracks = {key: self._track(key, topic) for key, topic in mapping.topics.items()}
        self._read()
        self._origin = min(min(track.stamps) for track in self._tracks.values())
        self._moments = self._tracks["action"].seconds(self._origin)
        self._sensors = {key: track for key, track in self._tracks.items() if key != "action"}
        self._index = {key: track.newest(self._origin, self._moments) for key, track in self._sensors.items()}
        self._first = self._first_step()
        self._check_moments()
        self._read_later()
        self.features: dict[str, Feature] = {k: t.decoder.feature() for k, t in self._sensors.items()}

    def episode(self, id_: str) -> Episode:
        chosen = slice(self._first, None)
        index = {key: places[chosen] for key, places in self._index.items()}
        commands = self._tracks["action"]
        actions = commands.at(np.arange(self._first, len(self._moments) - 1))
        rows = Rows(
            action=actions,
            observations={key: track.at(index[key]) for key, track in self._sensors.items()},
            wall_time=commands.wall()[self._first : -1],
            monotonic_time=self._moments[self._first : -1],
            extra={},
            streams={
                key: self._stream(key) for key, track in self._sensors.items() if track.topic.keep == "all"
            },
            metadata=self._metadata(index),
        )
        options = ReadArrays(task=self._mapping.task, robot=self._mapping.robot)
        return recorded_episode(id_, rows, options)

    @property
    def notes(self) -> tuple[str, ...]:
        mapped = {topic.topic for topic in self._mapping.topics.values()}
        found = list(self._bag.notes)
        found.append(
            f"Times are those of the {self._mapping.clock} clock, monotonic ones from the first message on."
        )
        if self._first:
            found.append(
                f"{self._first} commands came before the first message of every sensor and are left out."
            )
        found.append("The last command is left out: it only tells when the last observation was.")
        found.append("Rewards are not recorded and are NaN.")
        for key, track in self._tracks.items():
            if track.decoder.skipped:
                found.append(f"{key}: {track.decoder.skipped} messages had nothing of what is wanted.")
        rest = sorted(topic for topic, count in self._bag.counts.items() if topic not in mapped and count)
        if rest:
            found.append(f"Topics that are not mapped: {', '.join(rest)}.")
        return tuple(found)

    def _track(self, key: str, topic: Topic) -> _Track:
        kind = self._bag.topics[topic.topic]
        place = f"{self._bag.place}: {key}"
        decoder = Decoder(topic, kind, place)
        if self._mapping.clock == "header" and not decoder.has_stamp:
            raise DatasetError(f"{place}: {kind} has no time stamp; use clock = 'receive' for all topics.")
        later = topic.keep == "steps" and kind in _PICTURES
        if key == "action" and kind in _PICTURES:
            raise DatasetError(f"{place}: {kind} cannot be an action.")
        return _Track(topic, decoder, later)

    def _read(self) -> None:
        by_topic: dict[str, list[_Track]] = {}
        for track in self._tracks.values():
            by_topic.setdefault(track.topic.topic, []).append(track)
        for message in self._bag.messages(by_topic.keys()):
            for track in by_topic[message.topic]:
                track.add(message.raw, message.received_ns, self._mapping.clock, self._budget)
        empty = [track.topic.topic for track in self._tracks.values() if not track.stamps]
        if empty:
            raise DatasetError(f"{self._bag.place}: no messages on {empty} that say what is wanted.")

    def _read_later(self) -> None:
        """Decode the pictures that some step saw, and no others."""
        later = {key: track for key, track in self._sensors.items() if track.later}
        wanted = {key: set(self._index[key][self._first :].tolist()) for key in later}
        counts = dict.fromkeys(later, 0)
        for message in self._bag.messages({track.topic.topic for track in later.values()}):
            for key, track in later.items():
                if track.topic.topic != message.topic:
                    continue
                if counts[key] in wanted[key]:
                    value = track.decoder.value(track.decoder.message(message.raw), self._budget)
                    assert value is not None  # pictures are never skipped
                    track.rows[counts[key]] = value
                counts[key] += 1

    def _first_step(self) -> int:
        ready = np.all([places >= 0 for places in self._index.values()], axis=0)
        if ready.sum() < 2:
            late = {
                track.topic.topic: round(float(track.seconds(self._origin).min()), 6)
                for track in self._sensors.values()
            }
            raise DatasetError(
                f"{self._bag.place}: fewer than two of the {len(self._moments)} commands, from "
                f"{self._moments[0]:.6f} to {self._moments[-1]:.6f} s, come after the first message of "
                f"every sensor; those came at {late} s. A step needs an observation before it and one after."
            )
        return int(np.argmax(ready))

    def _check_moments(self) -> None:
        back = np.flatnonzero(np.diff(self._moments) < 0)
        if len(back):
            raise DatasetError(
                f"{self._bag.place}: command {int(back[0]) + 1} is earlier than the one before it by the "
                f"{self._mapping.clock} clock; use the other clock."
            )
        for key, track in self._sensors.items():
            age = self._age(key, self._index[key][self._first :])
            if track.topic.max_age_s is not None and age.max() > track.topic.max_age_s:
                step = int(np.argmax(age > track.topic.max_age_s))
                raise DatasetError(
                    f"{self._bag.place}: {key} was {age[step]:.3f} s old at step {step}; max_age_s of its "
                    f"topic is {track.topic.max_age_s}. The sensor stopped, or its clock differs."
                )

    def _age(self, key: str, index: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._moments[self._first :] - self._sensors[key].seconds(self._origin)[index]

    def _stream(self, key: str) -> Stream:
        track = self._tracks[key]
        return Stream(track.seconds(self._origin), track.wall(), np.stack(track.values), self.features[key])

    def _metadata(self, index: dict[str, NDArray[np.int64]]) -> dict[str, Any]:
        lag = {
            key: float(np.median(np.array(track.received) - np.array(track.stamps))) * _NS
            for key, track in self._tracks.items()
        }
        return {
            "clock": self._mapping.clock,
            "topics": {key: topic.topic for key, topic in self._mapping.topics.items()},
            "commands_left_out": {"before": self._first, "after": 1},
            "last_command": self._tracks["action"].values[-1].tolist(),
            "received_after_stamp_s": lag,
            "largest_age_s": {key: float(self._age(key, places).max()) for key, places in index.items()},
        }
