"""What labelling gives: one row per step of an episode."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """Labels of the T steps of one episode for one method, each array (T,).

    Attributes:
        episode_id: Which episode.
        rule: Name of the method.
        region: P0, P1, H, P2, demos, autonomous or paused.
        segment: Number of the run of one source the step is in, cut at breaks; -1 when paused. An actor's
            chunk stays inside one.
        block: Number of the continuous recording the step is in; -1 when paused. A critic's chunk stays
            inside one.
        continuous: Row t + 1 of the observations follows step t without lost time, whoever acts there.
        bc_weight: Weight in imitation, 0 for none.
        critic: The transition from row t to row t + 1 is learned from by a critic, action as executed.
        online: In the half of a batch that holds own experience.
        prior: In the half that holds demonstrations.
        bootstrap: A target that ends with this step adds the value of the next state. False only where the
            task ended: a takeover, a break and a time limit bootstrap.
        viability: 1 the policy succeeded from here, 0 it failed, NaN not known.
        progress: Time to success is learned from this step.
        indicator: 1 better than expected, 0 not, -1 none.
        preference: 0 undesirable, 1 desirable, 2 desirable and a person's, -1 none.
        keep: The step serves the method in some way.
        notes: What was left out and why, in words.
    """

    episode_id: str
    rule: str
    region: NDArray[np.str_]
    segment: NDArray[np.int64]
    block: NDArray[np.int64]
    continuous: NDArray[np.bool_]
    bc_weight: NDArray[np.float64]
    critic: NDArray[np.bool_]
    online: NDArray[np.bool_]
    prior: NDArray[np.bool_]
    bootstrap: NDArray[np.bool_]
    viability: NDArray[np.float64]
    progress: NDArray[np.bool_]
    indicator: NDArray[np.int8]
    preference: NDArray[np.int8]
    keep: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of steps T."""
        return len(self.region)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def count(labels: Iterable[Labels]) -> Counter[str]:
    """How many steps carry which label, over any number of episodes.

    The count over a fleet is the sum of the counts over its robots. Keys: ``steps``, ``region P0`` and so on,
    ``imitated``, ``critic``, ``online``, ``prior``, ``viability 0``, ``viability 1``, ``progress``,
    ``indicator 0`` ..., ``preference 0`` ..., ``kept``.
    """
    total: Counter[str] = Counter()
    for one in labels:
        total["steps"] += len(one)
        total["imitated"] += int((one.bc_weight > 0).sum())
        total["kept"] += int(one.keep.sum())
        for name in ("critic", "online", "prior", "progress"):
            total[name] += int(getattr(one, name).sum())
        for name in ("region", "indicator", "preference"):
            values, times = np.unique(getattr(one, name), return_counts=True)
            total.update({f"{name} {value}": int(n) for value, n in zip(values, times, strict=True)})
        for value in (0, 1):
            total[f"viability {value}"] += int((one.viability == value).sum())
    return total
