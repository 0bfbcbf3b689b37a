"""What a replay takes in: one episode as arrays, with where its transitions may start and must end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from data.labels import Labels, imitation_actions, label
from data.labels.regions import bootstraps
from data.labels.segments import broken, run_numbers, sources

if TYPE_CHECKING:
    from collections.abc import Collection

    from data.records import Episode

type Draw = Literal["critic", "keep"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """An episode of T steps as arrays.

    Attributes:
        observations: By key, each (T + 1, ...): row t is what step t saw, row T what came of the last one.
        action: (T, A), executed, robot units.
        reward: (T,).
        ends: (T,), the task ended with this step.
        continuous: (T,), no time was lost between this step and the next observation; None for always.
        starts: (T,), a transition may start here; None for everywhere.
        actor: (T,) whole numbers; a chunk that an actor imitates stays inside a run of equal ones; None for
            one run.
        imitation_action: (T, A), what an actor imitates, robot units; None when no batch is to give it.
        columns: Further numbers per step by name, each (T,) or (T, ...), such as the weight in imitation.
        id: Names the episode.
        task: The task in words.
        version: Learner step of the policy that acted; None for data that does not grow stale.
        judged: Rewards are learned from, so that each must be finite.
    """

    observations: Mapping[str, NDArray[Any]]
    action: NDArray[Any]
    reward: NDArray[Any]
    ends: NDArray[np.bool_]
    continuous: NDArray[np.bool_] | None = None
    starts: NDArray[np.bool_] | None = None
    actor: NDArray[np.integer] | None = None
    imitation_action: NDArray[Any] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    id: str = ""
    task: str = ""
    version: int | None = None
    judged: bool = True

    def __len__(self) -> int:
        """Number of steps T."""
        return len(self.action)

    @classmethod
    def of(
        cls,
        episode: Episode,
        labels: Labels | None = None,
        *,
        keys: Collection[str] | None = None,
        columns: Collection[str] = (),
        draw: Draw = "critic",
        imitation: bool = False,
        version: int | None = None,
    ) -> Recording:
        """Recording of an episode under the labels of a method.

        Args:
            episode: The facts.
            labels: What the method makes of it; everything is replayed when None, as by ``"hil-serl"``.
            keys: Observations to hold; all of them when None.
            columns: Columns of the labels to hold, such as ``("bc_weight",)``.
            draw: Where transitions start: ``"critic"`` where a critic learns, ``"keep"`` where the method has
                any use for the step.
            imitation: Hold the action to imitate too: see `data.labels.imitation_actions`.
            version: Learner step of the policy that acted.

        Raises:
            KeyError: An observation or a column is missing.
            ValueError: The labels are of another episode.
        """
        missing = [key for key in keys or () if key not in episode.observations]
        if missing:
            raise KeyError(
                f"Episode {episode.id} lacks observations {missing}; it has {sorted(episode.observations)}."
            )
        if labels is None and columns:
            labels = label(episode, "hil-serl")
        facts = _everything(episode) if labels is None else _labelled(episode, labels, draw)
        return cls(
            observations={key: episode.observations[key] for key in (keys or episode.observations)},
            action=episode.action,
            reward=episode.reward,
            imitation_action=imitation_actions(episode) if imitation else None,
            columns={} if labels is None else _columns(labels, columns),
            id=episode.id,
            task=episode.task,
            version=version,
            **facts,
        )


def _everything(episode: Episode) -> dict[str, Any]:
    """What is taken from the facts alone where every step that can be replayed is."""
    found = sources(episode)
    lost = broken(episode, found=found)
    continuous = ~lost  # nowhere in a pause
    return {
        "ends": ~bootstraps(episode),
        "continuous": continuous,
        "starts": continuous,
        "actor": 2 * run_numbers(found, lost),
        "judged": bool(continuous.any()),
    }


def _labelled(episode: Episode, labels: Labels, draw: Draw) -> dict[str, Any]:
    if (labels.episode_id, len(labels)) != (episode.id, len(episode)):
        raise ValueError(
            f"The labels are of episode {labels.episode_id} with {len(labels)} steps, not of "
            f"{episode.id} with {len(episode)}; label each episode anew."
        )
    return {
        "ends": ~labels.bootstrap,
        "continuous": labels.continuous,
        "starts": getattr(labels, draw),
        # A change between imitated and not ends an actor's chunk as a change of source does.
        "actor": 2 * labels.segment + (labels.bc_weight > 0),
        "judged": bool(labels.critic.any()),
    }


def _columns(labels: Labels, names: Collection[str]) -> dict[str, NDArray[Any]]:
    found = labels.columns() if names else {}
    if unknown := sorted(set(names) - found.keys()):
        raise KeyError(
            f"The labels of episode {labels.episode_id} have no columns {unknown}; they have {sorted(found)}."
        )
    return {name: found[name] for name in names}
