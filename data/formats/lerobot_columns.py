"""Which columns of a LeRobotDataset an episode becomes, and what such columns say about an episode.

A LeRobotDataset has one rate, float32 actions, no time but frame / fps, and every column in every row. So a
row without a policy's action holds the executed one instead, and a column beside it says that it does. Arrays
of two axes and more become vectors, since LeRobot's tool for editing datasets fails on others. A reward that
is not known is a 0 with a column beside it that says so, for NaN would spoil LeRobot's statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError
from data.lerobot_index import SHAPE
from data.records import Outcome, SegmentKind, Source

if TYPE_CHECKING:
    from enum import StrEnum

    from numpy.typing import NDArray

    from data.features import Feature
    from data.records import Episode

PLANS: Mapping[str, str] = {"action.base": "action_base", "action.policy": "action_policy"}
"""Columns of actions that were not executed, by the field of an `Episode` that they come from."""
REWARD, SUCCEEDED = "next.reward", "next.success"
VALID = "valid."
"""Before the name of such a column, or of reward and success: whether the row has one. Where not, the
executed action stands in its place, or 0, or False."""
CODES: Mapping[str, type[StrEnum]] = {
    "robot_rl.source": Source,
    "robot_rl.segment_kind": SegmentKind,
    "robot_rl.outcome": Outcome,
}
"""Columns of numbers that stand for texts, in the order of the texts."""
_FLAGS: Mapping[str, str] = {
    "intervention": "bool",
    "intervention_segment": "int64",
    REWARD: "float32",
    "next.done": "bool",
    "next.truncated": "bool",
    SUCCEEDED: "bool",
    **{f"{VALID}{name}": "bool" for name in (*PLANS, REWARD, SUCCEEDED)},
}
_EXACT = 2**53
"""Greatest whole number up to which a double holds each."""
_RESERVED = {"timestamp", "frame_index", "episode_index", "index", "task_index", "task", "action"}


@dataclass(frozen=True)
class Columns:
    """How the observations of a set of episodes are kept.

    Attributes:
        pictures: Keys that become cameras.
        arrays: Keys that become columns of their own type.
        apart: Keys that LeRobot cannot hold, with the reason; only the sidecar has them.
    """

    pictures: tuple[str, ...]
    arrays: tuple[str, ...]
    apart: Mapping[str, str]


NO_OBSERVATIONS = Columns((), (), {})
"""Of `rows` that are wanted without observations."""


def choose(features: Mapping[str, Feature]) -> Columns:
    """Decide for every observation how a LeRobotDataset keeps it."""
    pictures, arrays, apart = [], [], {}
    for key, feature in features.items():
        reason = _unfit(key, feature)
        if reason:
            apart[key] = reason
        elif feature.is_image and feature.shape[2] == 3:
            pictures.append(key)
        else:
            arrays.append(key)
    return Columns(tuple(pictures), tuple(arrays), apart)


def _unfit(key: str, feature: Feature) -> str:
    if key in _RESERVED or key in _FLAGS or key in CODES or key in PLANS or "/" in key:
        return "its name means something else there"
    camera = feature.is_image and feature.shape[2] == 3
    if camera and feature.shape[0] in (1, 3):
        return "LeRobot takes a picture 1 or 3 pixels high for one with its channels first"
    if "image" in key and not camera:
        return "LeRobot keeps statistics of keys with 'image' for 8-bit colour pictures only"
    if feature.dtype == "float16":
        return "LeRobot's files have no float16"
    return ""


def lerobot_features(
    features: Mapping[str, Feature], columns: Columns, action_names: list[str], *, video: bool
) -> dict[str, dict[str, Any]]:
    """The `features` that `LeRobotDataset.create` takes."""
    made: dict[str, dict[str, Any]] = {}
    for key in columns.pictures:
        made[key] = {
            "dtype": "video" if video else "image",
            "shape": features[key].shape,
            "names": ["height", "width", "channels"],
        }
    for key in columns.arrays:
        feature = features[key]
        flat = len(feature.shape) > 1
        made[key] = {
            "dtype": feature.dtype,
            "shape": (feature.size,),
            "names": None if flat else list(feature.names) or None,
            **({"info": {SHAPE: list(feature.shape)}} if flat else {}),
        }
    for key in ("action", *PLANS):
        made[key] = {"dtype": "float32", "shape": (len(action_names),), "names": action_names}
    for key, dtype in _FLAGS.items():
        made[key] = {"dtype": dtype, "shape": (1,), "names": None}
    for key, kind in CODES.items():
        made[key] = {"dtype": "int64", "shape": (1,), "names": None, "info": {"codes": [*map(str, kind)]}}
    return made


def rows(episode: Episode, columns: Columns) -> dict[str, NDArray[Any]]:
    """The columns of an episode, (T, *shape) each, those of `lerobot_features`.

    Raises:
        DatasetError: An executed action, an observation or a known reward is not finite: LeRobot's
            statistics, and with them every policy trained on the dataset, would become NaN without a word.
            Or whole numbers of an only step are too large for them.
    """
    steps = len(episode)
    made: dict[str, NDArray[Any]] = {}
    for key in columns.pictures:
        made[key] = episode.observations[key][:steps]
    for key in columns.arrays:
        made[key] = episode.observations[key][:steps].reshape(steps, -1)
    made["action"] = _single(episode.action)
    for key, name in PLANS.items():
        plan = _single(getattr(episode, name))
        valid = np.asarray(np.isfinite(plan).all(axis=1))
        made[key] = np.where(valid[:, None], plan, made["action"])
        made[f"{VALID}{key}"] = valid
    made |= _flags(episode)
    for key in ("action", REWARD, *columns.arrays):
        _refuse_not_finite(episode.id, key, made[key])
    for key in ("intervention_segment", *columns.arrays):
        _refuse_large(episode.id, key, made[key])
    return {key: value.reshape(steps, 1) if value.ndim == 1 else value for key, value in made.items()}


def _flags(episode: Episode) -> dict[str, NDArray[Any]]:
    steps = len(episode)
    last = np.arange(steps) == steps - 1
    outcome = np.full(steps, list(Outcome).index(episode.outcome))
    rewarded = ~np.isnan(episode.reward)
    return {
        "intervention": episode.source == Source.HUMAN,
        "intervention_segment": episode.segment_id,
        REWARD: _single(np.where(rewarded, episode.reward, 0.0)),
        f"{VALID}{REWARD}": rewarded,
        "next.done": episode.terminated | episode.truncated,
        "next.truncated": episode.truncated,
        SUCCEEDED: last & episode.success,
        f"{VALID}{SUCCEEDED}": np.full(steps, episode.outcome is not Outcome.UNKNOWN),
        "robot_rl.source": _codes(Source, episode.source),
        "robot_rl.segment_kind": _codes(SegmentKind, episode.segment_kind),
        "robot_rl.outcome": outcome,
    }


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As float32; what is too large for it becomes infinite, and is refused or counts as missing."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _codes(kind: type[StrEnum], texts: NDArray[np.str_]) -> NDArray[np.int64]:
    codes = {str(member): code for code, member in enumerate(kind)}
    return np.array([codes[str(text)] for text in texts], np.int64)


def _refuse_not_finite(id_: str, key: str, values: NDArray[Any]) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        step = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DatasetError(
            f"Episode {id_}: {key} is not a finite float at step {step}. LeRobot would compute statistics "
            "of NaN from it; leave the episode out: robot-rl data split --ids puts it into a part of its own."
        )


def _refuse_large(id_: str, key: str, values: NDArray[Any]) -> None:
    """LeRobot keeps the statistics of an only row as whole numbers, beside floats of longer episodes."""
    if (
        len(values) == 1
        and values.dtype.kind in "iu"
        and bool(((values > _EXACT) | (values < -_EXACT)).any())
    ):
        raise DatasetError(
            f"Episode {id_} has one step, and {key} holds {values.ravel().tolist()} there: LeRobot's "
            "statistics cannot hold whole numbers beyond 2**53 of such an episode. Leave it out: "
            "robot-rl data split --ids puts it into a part of its own."
        )
