"""What a report is made of: a run's result, metrics and recorded episodes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.config import from_dict
from data.records import Episode
from data.store import EpisodeStore
from robot_rl.evaluate import EvaluateConfig, record_episodes
from robot_rl.runs import RunDirectory
from robot_rl.statistics import PairedDifference, paired_difference

ARMS = ("base", "refined")
"""Two evaluations on the same seeds in a result, and the sub-folders of ``shown`` with episodes of them."""
SHOWN = "shown"


@dataclass(frozen=True)
class Material:
    """Everything :mod:`robot_rl.report.build` draws from.

    Attributes:
        kind: what the run was: demo, refine, ...
        config: its configuration.
        result: content of result.json.
        metrics: rows of metrics.jsonl, of the refinement where the run has several parts.
        episodes: by arm, recorded episodes of the evaluation, that of the video among them; can be empty.
    """

    kind: str
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    episodes: Mapping[str, Sequence[Episode]]

    @property
    def compares(self) -> bool:
        """Whether base and refined were evaluated on the same seeds."""
        return all(arm in self.result for arm in ARMS)

    def outcomes(self, arm: str) -> list[bool]:
        """Success per seed of an arm."""
        return [bool(row["success"]) for row in self.result[arm]["episodes"]]

    def difference(self) -> PairedDifference:
        """Refined minus base, on the same seeds."""
        return paired_difference(self.outcomes("base"), self.outcomes("refined"))

    @property
    def task(self) -> str:
        """Name of the task."""
        found: str = self.evaluation().get("task") or self.config.get("task") or "the task"
        return found

    def evaluation(self) -> Mapping[str, Any]:
        """Configuration of the refined arm's evaluation; empty without one."""
        found: Mapping[str, Any] = self.result.get("refined", {}).get("config", {})
        return found


def read_material(path: Path) -> Material:
    """Read a run directory.

    Raises:
        RunError: if it holds no run, or one that did not finish.
    """
    run = RunDirectory.open(path)
    rows = run.metrics()
    inner = path / "refined"  # a demo keeps its refinement in a folder of its own
    if not any("success" in row for row in rows) and (inner / "config.json").exists():
        rows = RunDirectory.open(inner).metrics()
    episodes = {arm: _shown(path / SHOWN / arm) for arm in ARMS}
    result = run.read_json("result.json")
    result.setdefault("versions", run.versions)
    if (path / "stages.json").exists():
        result.setdefault("stages", run.read_json("stages.json").get("timing", {}))
    return Material(run.kind, run.config, result, rows, episodes)


def choose_seed(base: Mapping[str, Any], refined: Mapping[str, Any]) -> int | None:
    """A seed that fails before and succeeds after, the one that takes the median number of steps after.

    Args:
        base: an evaluation's JSON values.
        refined: another one on the same seeds.

    Returns:
        None if there is no such seed.
    """
    failed = {row["seed"] for row in base["episodes"] if not row["success"]}
    gained = sorted(
        (row["steps"], row["seed"]) for row in refined["episodes"] if row["success"] and row["seed"] in failed
    )
    return gained[(len(gained) - 1) // 2][1] if gained else None


def record_shown(run: Path, base: Mapping[str, Any], refined: Mapping[str, Any]) -> None:
    """Record the episodes that a report shows: the chosen seed and its wave, under the base and refined.

    Args:
        run: the run directory; episodes go to ``shown/base`` and ``shown/refined``.
        base: JSON values of the base's evaluation, as ``EvaluationResult.to_json`` gives them.
        refined: of the refined policy's, on the same seeds.
    """
    seed = choose_seed(base, refined)
    if seed is None:
        seed = base["episodes"][0]["seed"]
    for arm, evaluation in zip(ARMS, (base, refined), strict=True):
        config = from_dict(EvaluateConfig, evaluation["config"])
        first = seed - (seed - config.seed) % config.batch
        wave = [one for one in range(first, first + config.batch) if one in config.seeds]
        store = EpisodeStore(run / SHOWN / arm)
        bare = dataclasses.replace(config, json=None, record=(), record_to=None)
        for episode in record_episodes(bare, wave):
            if episode.id not in store:
                store.write(episode)


def bands(episodes: Sequence[Episode], values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Median and quartiles over episodes at each step that at least three of them reached.

    Args:
        episodes: N episodes.
        values: per episode (T,).

    Returns:
        (3, T') quartiles 25, 50 and 75 %; T' is 0 for fewer than three episodes.
    """
    reached = sorted((len(episode) for episode in episodes), reverse=True)
    length = reached[2] if len(reached) >= 3 else 0
    table = np.full((len(values), length), np.nan)
    for row, value in zip(table, values, strict=True):
        row[: len(value)] = value[:length]
    return np.asarray(np.nanquantile(table, [0.25, 0.5, 0.75], axis=0)) if length else np.empty((3, 0))


def _shown(path: Path) -> list[Episode]:
    store = EpisodeStore(path)
    return list(store) if store.exists else []
