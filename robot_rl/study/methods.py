"""Cells of this package's own methods. Others are functions elsewhere, named in the file of the study."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.config import from_dict, to_dict
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.runs import RunDirectory
from robot_rl.study.plan import Cell, StudyError
from robot_rl.task_settings import read_settings

OWN = frozenset({"out", "task", "seed", "options", "shifts", "cameras", "resume"})
"""Fields of a refinement that the cell itself determines."""
CONFIGURATIONS = {"residual": "robot_rl.correct.residual_recipe:RefineConfig"}
"""Whose default ``env_steps`` a function here learns from; see `robot_rl.study.cell.learning_steps`."""


def base(cell: Cell, out: Path) -> Mapping[str, Any]:  # noqa: ARG001 - nothing is kept between attempts
    """The frozen base alone; parameters are ``policy``, its folder, and ``device``."""
    if unknown := sorted(cell.parameters.keys() - {"policy", "device"}):
        raise StudyError(f"parameters {unknown} mean nothing to the base alone: it has device, policy")
    return _evaluation(cell, None)


def residual(cell: Cell, out: Path) -> Mapping[str, Any]:
    """A residual corrector on the base in ``policy``; other parameters go to ``RefineConfig``."""
    from robot_rl.correct.residual_recipe import RefineConfig, refine

    if own := sorted(cell.parameters.keys() & OWN):
        raise StudyError(f"parameters {own} follow from the study itself: remove them from the file")
    fields = {field.name for field in dataclasses.fields(RefineConfig)} - OWN
    unknown = sorted(set(cell.parameters) - fields)
    if unknown:
        raise StudyError(f"parameters {unknown} are none of RefineConfig: it has {', '.join(sorted(fields))}")
    place = {
        "out": str(out / "refined"),
        "task": cell.task,
        **to_dict(read_settings(cell.options)),
        "seed": cell.seed,
        "resume": (out / "refined" / "config.json").exists(),
    }
    config = from_dict(RefineConfig, {**cell.parameters, **place})
    run = refine(config)
    facts = RunDirectory.open(run).read_json("result.json")
    return {**_evaluation(cell, run), "env_steps": facts["env_steps"]}


def _evaluation(cell: Cell, refiner: Path | None) -> Mapping[str, Any]:
    policy = cell.parameters.get("policy")
    if not policy:
        raise StudyError("the parameter policy is missing: give the folder of the base")
    config = EvaluateConfig(
        policy=Path(policy),
        refiner=() if refiner is None else (refiner,),
        task=cell.task,
        **read_settings(cell.options).task_settings,
        episodes=cell.episodes,
        seed=cell.first_seed,
        workers=1,
        device=cell.parameters.get("device", "cpu"),
    )
    result = evaluate(config).to_json()
    return {"episodes": result["episodes"], "base_hash": result["base_hash"]}
