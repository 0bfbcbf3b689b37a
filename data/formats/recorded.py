"""Episodes from the plain arrays of other formats, with one rule for what those do not record.

Two things are often missing. *Times*: they stay NaN unless the user states a rate, since a nominal rate is no
measurement. *The observation after the last step*: it is a copy of the last one, marked in the metadata, or
the last step is left out; see `ReadArrays`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from data.errors import DatasetError
from data.formats.limits import MAX_DECODED_BYTES, Budget
from data.records import Episode
from data.steps import Outcome, Source
from data.streams import Stream

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ReadArrays:
    """How a format is read that holds plain arrays.

    Attributes:
        task: The task in words, where the file does not say.
        robot: Which robot, where the file does not say.
        rate_hz: Control rate of a recording without times, Hz; its times are then nominal, counted from 0 s,
            and the metadata say so. Without it they are NaN.
        last_step: What stands for the observation after the last step where it was not recorded:
            ``"repeat"`` the last one, or ``"drop"`` the last step and keep it in the metadata only.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it, where the file does not say.
        max_decoded_bytes: Greatest size of one episode in memory.
    """

    task: str = ""
    robot: str = ""
    rate_hz: float | None = None
    last_step: Literal["repeat", "drop"] = "repeat"
    action_spec: Mapping[str, Any] | None = None
    max_decoded_bytes: int = MAX_DECODED_BYTES

    def __post_init__(self) -> None:
        """Check the rate and the limit."""
        if self.rate_hz is not None and not (math.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise ValueError(f"rate_hz is {self.rate_hz}; a positive number is needed, or nothing.")
        Budget(self.max_decoded_bytes, "options")

    def described_action(self) -> dict[str, Any] | None:
        """What actions mean, where the user said so."""
        return None if self.action_spec is None else dict(self.action_spec)

    def notes(self, *, times: bool, last_observation: bool, rewards: bool) -> tuple[str, ...]:
        """What is assumed, one sentence each.

        Args:
            times: Whether the format records times.
            last_observation: Whether it records the observation after the last step.
            rewards: Whether it records rewards.
        """
        found = []
        if not times and self.rate_hz is None:
            found.append(
                "Times are not recorded in this format and are NaN; state rate_hz for nominal ones (on the "
                "command line --read rate_hz 20)."
            )
        elif not times:
            found.append(f"Times are nominal: counted from 0 s at {self.rate_hz:g} Hz, not measured.")
        if not last_observation and self.last_step == "repeat":
            found.append("The observation after the last step is not recorded; the last one is repeated.")
        elif not last_observation:
            found.append(
                "The observation after the last step is not recorded; the last step of each episode is left "
                "out and kept in its metadata."
            )
        if not rewards:
            found.append("Rewards are not recorded and are NaN.")
        return tuple(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Arrays of one recording of T steps.

    Attributes:
        action: (T, A), executed.
        observations: By LeRobot key, each (T + 1, ...), or all (T, ...).
        reward: (T,); NaN when None.
        terminated: The task ended with the last step; otherwise the recording was cut there.
        wall_time: (T,), s; NaN when None.
        monotonic_time: (T,), s; nominal or NaN when None.
        extra: Diagnostics by key, each (T, ...).
        streams: Sensors with rates of their own.
        metadata: Further facts.
        outcome: How it ended.
    """

    action: NDArray[Any]
    observations: Mapping[str, NDArray[Any]]
    reward: NDArray[Any] | None = None
    terminated: bool = False
    wall_time: NDArray[Any] | None = None
    monotonic_time: NDArray[Any] | None = None
    extra: Mapping[str, NDArray[Any]]
    streams: Mapping[str, Stream] = field(default_factory=dict)
    metadata: Mapping[str, Any]
    outcome: Outcome = Outcome.UNKNOWN


def recorded_episode(id_: str, rows: Rows, options: ReadArrays) -> Episode:
    """One demonstration.

    Args:
        id_: Name of the episode.
        rows: Its arrays.
        options: The rules for what is missing.

    Raises:
        DatasetError: The arrays do not fit together, or nothing would be left.
    """
    steps, complete = _lengths(id_, rows)
    kept, metadata = steps, dict(rows.metadata)
    observations = dict(rows.observations)
    if complete:
        metadata["last_observation"] = "recorded"
    elif options.last_step == "repeat":
        observations = {key: np.concatenate([value, value[-1:]]) for key, value in observations.items()}
        metadata["last_observation"] = "repeated"
    else:
        kept = steps - 1
        metadata |= {"last_step": "dropped", "dropped_step": _last(rows)}
    if not kept:
        raise DatasetError(
            f"Episode {id_} has one step and no observation after it; nothing is left with "
            "last_step='drop'. Read it with 'repeat'."
        )
    ends = rows.terminated and kept == steps
    return Episode(
        id=id_,
        task=options.task,
        robot=options.robot,
        outcome=rows.outcome,
        observations=observations,
        metadata=metadata | {"times": _times_kind(rows, options)},
        extra={key: value[:kept] for key, value in rows.extra.items()},
        streams=rows.streams,
        **_columns(rows, kept, options),
        terminated=_last_only(kept, flag=ends),
        truncated=_last_only(kept, flag=not ends),
    )


def safe_key(name: str) -> str:
    """A name of another format as part of a key: what no key may hold becomes ``_``."""
    return _UNSAFE.sub("_", name).lstrip(".-") or "_"


def by_key[T](found: Mapping[str, T], place: str, key: Callable[[str], str] = safe_key) -> dict[str, T]:
    """Things of another format by the keys that they get.

    Args:
        found: By their names in the file.
        place: The file, for messages.
        key: Key of a name.

    Raises:
        DatasetError: Two names get the same key.
    """
    keys = {name: key(name) for name in found}
    if len(set(keys.values())) < len(keys):
        raise DatasetError(f"{place}: some names would share a key: {keys}. Rename them.")
    return {keys[name]: value for name, value in found.items()}


def safe_id(name: str) -> str:
    """A name of another format as the id of an episode: what no id may hold becomes ``_``."""
    return _UNSAFE.sub("_", name).lstrip("._-")[:128] or "episode"


def _lengths(id_: str, rows: Rows) -> tuple[int, bool]:
    """Steps T, and whether there are T + 1 observations."""
    steps = len(rows.action)
    lengths = {key: len(value) for key, value in rows.observations.items()}
    if (
        not steps
        or not lengths
        or len(set(lengths.values())) > 1
        or max(lengths.values()) - steps not in {0, 1}
    ):
        raise DatasetError(
            f"Episode {id_} has {steps} actions and observations of lengths {lengths}; at least one of "
            "each is needed, and as many observations as actions or one more."
        )
    return steps, max(lengths.values()) > steps


def _columns(rows: Rows, kept: int, options: ReadArrays) -> dict[str, Any]:
    none = np.full((kept, rows.action.shape[1]), np.nan)
    unknown = np.full(kept, np.nan)
    nominal = unknown if options.rate_hz is None else np.arange(kept) / options.rate_hz
    return {
        "action": rows.action[:kept],
        "action_base": none,
        "action_policy": none,
        "action_intended": none,
        "chunk_id": np.full(kept, -1),
        "chunk_index": np.full(kept, -1),
        "source": np.full(kept, str(Source.DEMO)),
        "segment_id": np.zeros(kept),
        "segment_kind": np.full(kept, "none"),
        "reward": unknown if rows.reward is None else rows.reward[:kept],
        "wall_time": unknown if rows.wall_time is None else rows.wall_time[:kept],
        "monotonic_time": nominal if rows.monotonic_time is None else rows.monotonic_time[:kept],
        "gain": np.ones(kept),
    }


def _last(rows: Rows) -> dict[str, Any]:
    reward = None if rows.reward is None else float(rows.reward[-1])
    return {"action": rows.action[-1].tolist(), "reward": reward, "terminated": rows.terminated}


def _last_only(length: int, *, flag: bool) -> NDArray[np.bool_]:
    column = np.zeros(length, bool)
    column[-1] = flag
    return column


def _times_kind(rows: Rows, options: ReadArrays) -> str:
    if rows.monotonic_time is not None:
        return "measured"
    return "unknown" if options.rate_hz is None else f"nominal {options.rate_hz:g} Hz"
