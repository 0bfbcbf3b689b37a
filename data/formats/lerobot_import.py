"""Episodes from the columns of a LeRobotDataset, whoever wrote them, and what had to be assumed.

LeRobot keeps no observation after the last step, no clock, and no agreed columns for who acted and how it
ended. The columns of LeRobot's own recorders, of its RL buffers and of RLinf are understood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import DatasetError
from data.formats.compare import truths
from data.formats.lerobot_columns import CODES, PLANS, REWARD, SUCCEEDED, VALID
from data.records import Episode, Outcome, SegmentKind, Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

    from numpy.typing import NDArray

    from data.lerobot import LeRobotEpisode, LeRobotFolder

INTERVENTION = ("intervention", "complementary_info.is_intervention", "intervene_flag", "is_intervention")
"""Columns that say whether a person acted, the first that is there counts."""
SUCCESS = (SUCCEEDED, "is_success")
"""Columns that say whether the task was done, likewise."""
_USED = {
    "action",
    *PLANS,
    *(f"{VALID}{name}" for name in (*PLANS, REWARD, SUCCEEDED)),
    *CODES,
    *INTERVENTION,
    "intervention_segment",
    *SUCCESS,
    REWARD,
    "next.done",
    "next.truncated",
}


@dataclass(frozen=True)
class ReadLeRobot:
    """How a LeRobotDataset is read.

    Attributes:
        sidecar: ``"use"`` what robot-rl wrote beside it, or ``"ignore"`` that.
        last_step: A LeRobotDataset has no observation after the last step: ``"repeat"`` the one before it
            (never use it to bootstrap from), or ``"drop"`` the last step, with its reward.
        source: Who acted where no column says so.
        cameras: Whether to decode pictures.
    """

    sidecar: Literal["use", "ignore"] = "use"
    last_step: Literal["repeat", "drop"] = "repeat"
    source: Literal["demo", "policy", "human"] = "demo"
    cameras: bool = True


def notes(folder: LeRobotFolder, options: ReadLeRobot) -> tuple[str, ...]:
    """What is assumed or left out when a dataset without sidecar is read."""
    keys = folder.features.keys()
    made = [
        "Times are LeRobot's frame / fps and not measured; the time of day is not known (NaN).",
        "The observation after the last step is not in the dataset: "
        + (
            "the one before it is repeated." if options.last_step == "repeat" else "the last step is dropped."
        ),
    ]
    if not keys & {*INTERVENTION, "robot_rl.source"}:
        made.append(f"No column says who acted; every step counts as {options.source!r}.")
    if not keys & {*SUCCESS, "robot_rl.outcome"}:
        made.append("No column says how episodes ended; their outcome is unknown.")
    if REWARD not in keys:
        made.append("There is no next.reward; rewards are NaN.")
    if not keys & {"next.done", "next.truncated"}:
        made.append("No column says whether the task ended; every episode counts as cut.")
    if "next.done" in keys and "next.truncated" not in keys:
        made.append("next.done does not tell ends from cuts: an end without success counts as a cut.")
    if folder.texts:
        made.append(f"Columns of text are not read: {', '.join(folder.texts)}.")
    if folder.cameras and not options.cameras:
        made.append(f"Pictures are not read: {', '.join(folder.cameras)}.")
    return tuple(made)


def episode_of(found: LeRobotEpisode, options: ReadLeRobot) -> Episode:
    """An `Episode` from the columns of a dataset.

    Raises:
        DatasetError: It has no action, a column has an impossible value, or the pictures do not fit.
    """
    columns, steps = found.columns, len(found)
    if "action" not in columns or columns["action"].ndim != 2:
        raise DatasetError(
            f"{found.folder.path} has no column 'action' of numbers; it has {sorted(columns)}."
        )
    observations = {key: value for key, value in columns.items() if key.startswith("observation.")}
    if options.cameras:
        observations |= {camera: found.frames(camera) for camera in found.folder.cameras}
    source = _source(found, options)
    human = source == Source.HUMAN
    kinds = np.where(human, str(SegmentKind.CORRECTION), str(SegmentKind.NONE))
    coded = _coded(found, "robot_rl.segment_kind", SegmentKind)
    parts: dict[str, NDArray[Any]] = {
        **_actions(found),
        "chunk_id": np.full(steps, -1),
        "chunk_index": np.full(steps, -1),
        "source": source,
        "segment_id": _segments(found, source),
        "segment_kind": kinds if coded is None else coded,
        "reward": _reward(found),
        **_ends(found),
        "wall_time": np.full(steps, np.nan),
        "monotonic_time": found.timestamps,
        "gain": np.ones(steps),
    }
    extra = {k: v for k, v in columns.items() if k not in observations and k not in _USED}
    return _finished(found, options, observations, parts, extra)


def _finished(
    found: LeRobotEpisode,
    options: ReadLeRobot,
    observations: Mapping[str, NDArray[Any]],
    parts: Mapping[str, NDArray[Any]],
    extra: Mapping[str, NDArray[Any]],
) -> Episode:
    metadata: dict[str, Any] = {"lerobot_episode": found.id, "times": "frame / fps"}
    if len(set(found.tasks)) > 1:
        metadata["tasks"] = list(found.tasks)
    columns: dict[str, Any] = {**parts}
    if options.last_step == "drop":
        if len(found) < 2:
            raise DatasetError(
                f"Episode {found.id} of {found.folder.path} has one step only; repeat the last."
            )
        columns = {name: values[:-1] for name, values in parts.items()}
        extra = {key: values[:-1] for key, values in extra.items()}
        cut = np.arange(len(found) - 1) == len(found) - 2
        columns["truncated"] = columns["truncated"] | (cut & ~columns["terminated"])
        metadata["last_step"] = "dropped"
    else:
        observations = {key: np.concatenate([v, v[-1:]]) for key, v in observations.items()}
        metadata["last_observation"] = "repeated"
    return Episode(
        id=f"episode_{found.id:06d}",
        task=found.task,
        outcome=_outcome(found),
        robot=found.folder.robot,
        observations=observations,
        extra=extra,
        metadata=metadata,
        **columns,
    )


def _actions(found: LeRobotEpisode) -> dict[str, NDArray[np.float64]]:
    action = found.columns["action"].astype(np.float64)
    made = {"action": action, "action_intended": np.full_like(action, np.nan)}
    for key, name in PLANS.items():
        made[name] = np.full_like(action, np.nan)
        if key in found.columns and found.columns[key].shape == action.shape:
            valid = _valid(found, key)
            made[name][valid] = found.columns[key][valid]
    return made


def _reward(found: LeRobotEpisode) -> NDArray[np.float64]:
    given = _one(found, REWARD)
    return np.full(len(found), np.nan) if given is None else np.where(_valid(found, REWARD), given, np.nan)


def _valid(found: LeRobotEpisode, key: str) -> NDArray[np.bool_]:
    """Where a column means what it says, (T,); everywhere when no column beside it tells."""
    told = _flag(found, f"{VALID}{key}")
    return np.ones(len(found), bool) if told is None else told


def _source(found: LeRobotEpisode, options: ReadLeRobot) -> NDArray[np.str_]:
    coded = _coded(found, "robot_rl.source", Source)
    if coded is not None:
        return coded
    for key in INTERVENTION:
        if key in found.columns:
            acted = truths(found.columns[key], _place(found, key)).reshape(len(found), -1).any(axis=1)
            return np.where(acted, str(Source.HUMAN), str(Source.POLICY))
    return np.full(len(found), str(Source(options.source)))


def _segments(found: LeRobotEpisode, source: NDArray[np.str_]) -> NDArray[np.int64]:
    stored = _one(found, "intervention_segment")
    if stored is not None:
        return stored.astype(np.int64)
    return np.cumsum(np.concatenate([[False], source[1:] != source[:-1]])).astype(np.int64)


def _ends(found: LeRobotEpisode) -> dict[str, NDArray[np.bool_]]:
    done, cut = _flag(found, "next.done"), _flag(found, "next.truncated")
    done = np.zeros(len(found), bool) if done is None else done
    truncated = done & (_outcome(found) is not Outcome.SUCCESS) if cut is None else cut.copy()
    terminated = done & ~truncated
    truncated[-1] |= not terminated[-1]  # the recording ends here, the task did not
    return {"terminated": terminated, "truncated": truncated}


def _outcome(found: LeRobotEpisode) -> Outcome:
    coded = _coded(found, "robot_rl.outcome", Outcome)
    if coded is not None:
        return Outcome(str(coded[-1]))
    for key in SUCCESS:
        values = _flag(found, key)
        if values is None or not _valid(found, key).any():
            continue
        if values.any():
            return Outcome.SUCCESS
        done = _flag(found, "next.done")
        judged = key == "is_success" or (done is not None and bool(done[-1]))
        return Outcome.FAILURE if judged else Outcome.UNKNOWN
    return Outcome.UNKNOWN


def _coded(found: LeRobotEpisode, key: str, kind: type[StrEnum]) -> NDArray[np.str_] | None:
    codes = _one(found, key)
    if codes is None:
        return None
    texts = np.array([str(member) for member in kind])
    if not np.isin(codes, np.arange(len(texts))).all():
        raise DatasetError(
            f"{_place(found, key)} holds {sorted(set(codes.tolist()))}; "
            f"0 to {len(texts) - 1} are known ({', '.join(texts)})."
        )
    return np.asarray(texts[codes.astype(np.int64)])


def _flag(found: LeRobotEpisode, key: str) -> NDArray[np.bool_] | None:
    """A column of one truth value per step, (T,); None where it is not there."""
    values = _one(found, key)
    return None if values is None else truths(values, _place(found, key))


def _place(found: LeRobotEpisode, key: str) -> str:
    return f"Episode {found.id} of {found.folder.path}: {key}"


def _one(found: LeRobotEpisode, key: str) -> NDArray[Any] | None:
    """A column of one number per step, (T,); None where it is not there."""
    if key not in found.columns:
        return None
    values = found.columns[key]
    if values.size != len(found):
        raise DatasetError(f"{_place(found, key)} has shape {values.shape}; one number a step is needed.")
    return values.reshape(len(found))
