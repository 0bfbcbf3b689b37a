"""Demonstrations for behaviour cloning, from an episode store or a LeRobotDataset v3 folder, in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from data.features import Feature
from data.lerobot import LeRobotFolder
from data.store import EpisodeStore
from data.windows import Trajectory
from hardware.action_spec import ActionGroup, ActionSpec
from policies.flow_config import TASK
from policies.networks import resize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.lerobot import LeRobotEpisode
    from data.records import Episode

logger = logging.getLogger(__name__)

_FRAMES = 128
"""Frames decoded at once, so that full-size pictures of a long episode need not fit in memory."""


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """A set of trajectories with what their numbers mean.

    Attributes:
        features: of the observations kept, as the robot gives them (images in full size).
        action_spec: of the actions.
        trajectories: in the order of the source; their images are averaged down already.
        source: where they are from, for messages.
    """

    features: Mapping[str, Feature]
    action_spec: ActionSpec
    trajectories: Sequence[Trajectory]
    source: str


@dataclass(frozen=True)
class Selection:
    """What of the data is imitated.

    Attributes:
        inputs: feature keys to keep; empty: all.
        image_size: (height, width) that images are averaged down to while they are read.
        sources: who must have acted in a step for it to be imitated.
        outcomes: endings of episodes that are imitated.
        action: the column that is imitated.
        action_unit: of the actions, where the data do not say.
    """

    inputs: tuple[str, ...] = ()
    image_size: tuple[int, int] = (64, 64)
    sources: tuple[str, ...] = ("demo", "human")
    outcomes: tuple[str, ...] = ("success", "unknown")
    action: str = "action"
    action_unit: str = ""


def read_demonstrations(path: Path | str, selection: Selection) -> Demonstrations:
    """Read the episodes below a path.

    Args:
        path: an episode store, a run of ``robot-rl collect``, or a LeRobotDataset v3 folder.
        selection: what to keep. A LeRobotDataset names neither sources nor outcomes: all of it is imitated.

    Raises:
        ValueError: if it is none of these, nothing in it fits the selection, or an input is missing.
    """
    path = Path(path)
    if (path / "meta" / "info.json").is_file():
        return _from_lerobot(LeRobotFolder(path), selection)
    for place in (path, path / "episodes"):
        store = EpisodeStore(place)
        if store.exists:
            return _from_store(store, selection)
    raise ValueError(
        f"{path} holds no demonstrations: neither an episode store nor a LeRobotDataset v3 folder; "
        "robot-rl collect makes the first"
    )


def joint_action_spec(
    action: NDArray[np.float64], names: Sequence[str], unit: str, rate_hz: float
) -> ActionSpec:
    """Describe actions of which only numbers and names are known, as absolute joint targets.

    The limits are the recorded range and a tenth more on each side.

    Args:
        action: (N, A) all recorded actions.
        names: A names.
        unit: of every dimension.
        rate_hz: control rate.
    """
    low, high = action.min(0), action.max(0)
    margin = np.maximum(0.1 * (high - low), 1e-3)
    group = ActionGroup(
        "robot",
        action.shape[1],
        "absolute",
        "joint",
        unit=unit,
        low=tuple((low - margin).tolist()),
        high=tuple((high + margin).tolist()),
        names=tuple(names),
    )
    return ActionSpec((group,), rate_hz)


def shrink(images: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Average images down to a size as the policy does with full ones, then round to whole levels.

    Args:
        images: (N, height, width, C).
        size: (height, width) wanted.
    """
    if images.shape[1:3] == tuple(size):
        return images
    # A recorded episode is read-only, which torch does not support; the copy is.
    small = resize(torch.from_numpy(np.array(images)), size)
    return np.asarray(small.round().to(torch.uint8).movedim(1, -1).contiguous().numpy())


def _keep(features: Mapping[str, Feature], selection: Selection, source: str) -> dict[str, Feature]:
    wanted = [key for key in selection.inputs if key != TASK]
    missing = [key for key in wanted if key not in features]
    if missing:
        raise ValueError(f"{source} has no {', '.join(missing)}; it has {', '.join(sorted(features))}")
    return {key: features[key] for key in (wanted if selection.inputs else sorted(features))}


def _from_store(store: EpisodeStore, selection: Selection) -> Demonstrations:
    source = str(store.path)
    features = _keep(store.features, selection, source)
    kept = [episode for episode in store if str(episode.outcome) in selection.outcomes]
    if not kept:
        raise ValueError(
            f"{source} holds {len(store)} episodes, none that ended in {' or '.join(selection.outcomes)}"
        )
    logger.info("%s: %d of %d episodes are imitated", source, len(kept), len(store))
    rate = (store.action_spec or {}).get("rate_hz")
    trajectories = [_recorded(episode, features, selection, rate) for episode in kept]
    return Demonstrations(features, _stored_action_spec(store, kept, selection), trajectories, source)


def _recorded(
    episode: Episode, features: Mapping[str, Feature], selection: Selection, rate_hz: float | None
) -> Trajectory:
    whole = Trajectory.of(
        episode, list(features), label=selection.action, sources=selection.sources, rate_hz=rate_hz
    )
    small = {
        key: shrink(rows, selection.image_size) if features[key].is_image else rows
        for key, rows in whole.observations.items()
    }
    return replace(whole, observations=small)


def _stored_action_spec(store: EpisodeStore, episodes: Sequence[Episode], selection: Selection) -> ActionSpec:
    declared = store.action_spec
    if declared is not None:
        return ActionSpec.from_json(declared)
    times = episodes[0].monotonic_time
    if len(times) < 2 or not times[-1] > times[0]:
        raise ValueError(f"{store.path} declares no action specification and its times do not advance")
    rate = (len(times) - 1) / float(times[-1] - times[0])
    names = [f"action{index}" for index in range(episodes[0].action.shape[1])]
    action = np.concatenate([episode.action for episode in episodes])
    return joint_action_spec(action, names, selection.action_unit, rate)


def _from_lerobot(folder: LeRobotFolder, selection: Selection) -> Demonstrations:
    source = str(folder.path)
    if selection.action not in folder.features:
        raise ValueError(f"{source} has no {selection.action!r}; it has {', '.join(sorted(folder.features))}")
    seen = {key: feature for key, feature in folder.features.items() if key.startswith("observation.")}
    features = _keep(seen, selection, source)
    trajectories = [_downloaded(episode, features, selection) for episode in folder]
    action = np.concatenate([trajectory.actions for trajectory in trajectories]).astype(np.float64)
    feature = folder.features[selection.action]
    names = feature.names or tuple(f"action{index}" for index in range(action.shape[1]))
    spec = joint_action_spec(action, names, feature.unit or selection.action_unit, folder.fps)
    return Demonstrations(features, spec, trajectories, source)


def _downloaded(episode: LeRobotEpisode, features: Mapping[str, Feature], selection: Selection) -> Trajectory:
    observations = {}
    for key in features:
        if key not in episode.folder.cameras:
            observations[key] = episode.columns[key]
            continue
        steps = range(len(episode))
        parts = [episode.frames(key, list(steps[i : i + _FRAMES])) for i in steps[::_FRAMES]]
        observations[key] = np.concatenate([shrink(part, selection.image_size) for part in parts])
    actions = episode.columns[selection.action]
    return Trajectory(observations, actions, None, episode.task, f"{episode.folder.path.name}:{episode.id}")
