"""The demo's job as cells of a study: the refined policy, and what it has to beat on the same seeds.

Every cell makes its own demonstrations and base from its training seed, with the demo's stages. Equal seeds
give equal bases, so cells of one training seed are paired; `base_hash` shows it. Parameters named like
fields of `DemoConfig` set the demo; what else a cell takes is said with it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from data.config import from_dict, to_dict
from robot_rl.collect import collect
from robot_rl.correct.residual_recipe import RefineConfig, refine
from robot_rl.demo import DemoConfig, collection, evaluation, refinement, training
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.parts import save_refiner
from robot_rl.refiner import Refiner
from robot_rl.seeds import TRAINING_SEEDS
from robot_rl.study.constant_offset import ConstantOffset
from robot_rl.study.plan import StudyError
from robot_rl.study.spiral_search import SpiralConfig, SpiralSearch
from robot_rl.task_settings import read_settings
from robot_rl.train import train

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from robot_rl.correct.corrector import Corrector
    from robot_rl.study.plan import Cell

OWN = ("out", "task", "seed", "episodes", "workers", "video", "options", "shifts", "cameras", "resume")
"""Fields that the cell itself determines."""
CONFIGURATIONS = {"refined": "robot_rl.demo:DemoConfig"}
"""Whose default ``env_steps`` a function here learns from; see `robot_rl.study.cell.learning_steps`."""


def base(cell: Cell, out: Path) -> Mapping[str, Any]:
    """The base alone; ``inputs``, ``demonstrations`` and ``base_steps`` make other bases of it."""
    config, rest = _configure(cell, out)
    _refuse(rest, ())
    return _outcome(cell, config, _build_base(config), None)


def refined(cell: Cell, out: Path) -> Mapping[str, Any]:
    """The base refined as in the demo; further parameters go over the fields of `RefineConfig`."""
    config, rest = _configure(cell, out)
    _refuse(rest, [field.name for field in dataclasses.fields(RefineConfig)])
    policy = _build_base(config)
    settings = to_dict(refinement(config, policy, config.out / "refined"))
    run = refine(from_dict(RefineConfig, {**settings, **rest}))
    facts = json.loads((run / "result.json").read_text(encoding="utf-8"))
    found = _outcome(cell, config, policy, run)
    return {**found, "env_steps": facts["env_steps"], "refinement_episodes": facts["episodes"]}


def spiral(cell: Cell, out: Path) -> Mapping[str, Any]:
    """The base and a scripted spiral search; further parameters are fields of `SpiralConfig`."""
    config, rest = _configure(cell, out)
    search = SpiralSearch(from_dict(SpiralConfig, rest))
    policy = _build_base(config)
    return _outcome(cell, config, policy, _save(search, config.out / "spiral"))


@dataclass(frozen=True)
class OffsetConfig:
    """How the best constant offset is sought.

    Attributes:
        offsets: Candidates, robot units per step; the default is in m along x, y, z. On a tie the first wins.
        trials: Episodes per candidate, on seeds of the refinement's kind, never on the evaluation's.
    """

    offsets: tuple[tuple[float, ...], ...] = (
        (0.0, 0.0, 0.0),
        *((0.0, 0.0, z) for z in (0.0005, -0.0005, -0.001, -0.002)),
        *((x, 0.0, z) for x in (0.0002, -0.0002) for z in (0.0, -0.001)),
        *((0.0, y, z) for y in (0.0002, -0.0002) for z in (0.0, -0.001)),
    )
    trials: int = 64


def constant(cell: Cell, out: Path) -> Mapping[str, Any]:
    """The base and the best constant offset; further parameters are fields of `OffsetConfig`."""
    config, rest = _configure(cell, out)
    grid = from_dict(OffsetConfig, rest)
    policy = _build_base(config)
    rates: list[float] = []
    for index, offset in enumerate(grid.offsets):
        place = config.out / "offsets" / f"{index:02d}"
        refiner = _save(ConstantOffset(offset), place)
        trial = EvaluateConfig(
            policy=policy,
            refiner=(refiner,),
            task=cell.task,
            **read_settings(cell.options).task_settings,
            episodes=grid.trials,
            seed=TRAINING_SEEDS + 1_000_000 * cell.seed,
            seen_seeds=True,
            workers=config.workers,
        )
        rates.append(_once(place / "trial.json", trial)["success_rate"])
    best = int(np.argmax(rates))
    found = _outcome(cell, config, policy, config.out / "offsets" / f"{best:02d}")
    return {**found, "offset_m": str(list(grid.offsets[best])), "trial_success_rate": rates[best]}


def _configure(cell: Cell, out: Path) -> tuple[DemoConfig, dict[str, Any]]:
    """The demo's configuration, and the parameters that are none of its fields."""
    if own := sorted(set(cell.parameters) & set(OWN)):
        raise StudyError(f"parameters {own} follow from the study itself: remove them from the file")
    fields = {field.name for field in dataclasses.fields(DemoConfig)}
    chosen = {name: value for name, value in cell.parameters.items() if name in fields}
    rest = {name: value for name, value in cell.parameters.items() if name not in fields}
    place = {"out": str(out), "task": cell.task, "seed": cell.seed, **to_dict(read_settings(cell.options))}
    settings = {**chosen, **place, "episodes": cell.episodes, "workers": 1}
    return from_dict(DemoConfig, settings), rest


def _refuse(parameters: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := sorted(set(parameters) - set(known)):
        also = f"; beside DemoConfig's: {', '.join(known)}" if known else ""
        raise StudyError(f"parameters {unknown} mean nothing to this cell{also}")


def _build_base(config: DemoConfig) -> Path:
    """Folder of the base: demonstrations and training, gone on with where an earlier attempt stopped."""
    demonstrations = config.out / "demonstrations"
    collect(collection(config, demonstrations))
    return train(training(config, demonstrations, config.out / "base"))


def _save(corrector: Corrector, folder: Path) -> Path:
    save_refiner(folder, Refiner(correct=corrector))
    return folder


def _outcome(cell: Cell, config: DemoConfig, policy: Path, refiner: Path | None) -> dict[str, Any]:
    """Evaluate on the study's seeds instead of the demo's."""
    asked = replace(evaluation(config, policy, refiner), seed=cell.first_seed)
    result = _once(config.out / "evaluation.json", asked)
    return {"episodes": result["episodes"], "base_hash": result["base_hash"]}


def _once(file: Path, config: EvaluateConfig) -> dict[str, Any]:
    """The result of an evaluation, from its file if an earlier attempt finished it."""
    if not file.exists():
        evaluate(replace(config, json=file))
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result
