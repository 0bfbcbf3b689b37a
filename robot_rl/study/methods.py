"""Cells of this package's own methods. Others are functions elsewhere, named in the file of the study."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data.config import from_dict, to_dict
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.methods import Method, find
from robot_rl.study.bases import Cloned, Recorded, demonstrations, read_table
from robot_rl.study.bases import base as cloned_base
from robot_rl.study.plan import Cell, StudyError
from robot_rl.task_settings import read_settings

OWN = frozenset({"out", "task", "seed", "options", "shifts", "cameras", "resume"})
"""Fields of a refinement that the cell itself determines."""
FURTHER = frozenset({"method", "base", "evaluation"})
"""Parameters of a refinement that are no fields of its configuration."""
SEED = "{seed}"
"""Stands for the training seed in any text among the parameters, such as the folder of a base."""
SHELF = "shelf"
"""Folder beside those of the cells for demonstrations and bases that they share."""


def base(cell: Cell, out: Path) -> Mapping[str, Any]:
    """The frozen base alone; parameters are ``policy`` or ``base``, see `refined`, and ``device``."""
    parameters = _parameters(cell)
    if unknown := sorted(parameters.keys() - {"policy", "base", "device", "evaluation"}):
        raise StudyError(f"parameters {unknown} mean nothing to the base alone: it has base, device, policy")
    return _evaluation(cell, _with_base(cell, out.parent / SHELF, parameters), None)


def residual(cell: Cell, out: Path) -> Mapping[str, Any]:
    """A residual corrector on the base in ``policy``; other parameters go to ``RefineConfig``."""
    return _refined(cell, out, {**_parameters(cell), "method": "residual"})


def refined(cell: Cell, out: Path) -> Mapping[str, Any]:
    """Any refinement, evaluated on the cell's seeds.

    Parameters: ``method``, as ``robot-rl refine`` takes it; ``policy``, or ``base``, a table of
    `robot_rl.study.bases.Cloned`, from which the cells of a training seed clone one base; ``evaluation``, a
    table of further fields of `EvaluateConfig`, such as ``{ gain = 0.0 }``; others are fields of the method's
    configuration. Where that has ``data`` and the file does not, the base's demonstrations are given; a table
    there is one of `robot_rl.study.bases.Recorded`. ``evaluation.options`` go over the task's, where it is
    evaluated in another variant than it learned in.
    """
    return _refined(cell, out, _parameters(cell))


def configuration(cell: Cell) -> str | type:
    """Configuration of the method that a cell of `refined` runs.

    Raises:
        StudyError: the parameter ``method`` is missing or unknown.
    """
    return _method(cell.parameters).config


CONFIGURATIONS: Mapping[str, str | Callable[[Cell], str | type]] = {
    "residual": "robot_rl.correct.residual_recipe:RefineConfig",
    "refined": configuration,
}
"""Whose default ``env_steps`` a function here learns from; see `robot_rl.study.cell.learning_steps`."""


def _parameters(cell: Cell) -> dict[str, Any]:
    return {
        name: value.replace(SEED, str(cell.seed)) if isinstance(value, str) else value
        for name, value in cell.parameters.items()
    }


def _with_base(cell: Cell, shelf: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make what the tables ``base`` and ``data`` ask for; in their place stand ``policy`` and ``data``."""
    made = dict(parameters)
    if isinstance(made.get("data"), Mapping):
        made["data"] = str(demonstrations(cell, shelf, read_table(Recorded, "data", made["data"])))
    if "base" not in made:
        return made
    if "policy" in made:
        raise StudyError("parameters name base and policy: a cell clones its base, or has it from a folder")
    wanted = read_table(Cloned, "base", made.pop("base"))
    made["policy"] = str(cloned_base(cell, shelf, wanted))
    made.setdefault("data", str(demonstrations(cell, shelf, wanted.recorded)))
    return made


def _method(parameters: Mapping[str, Any]) -> Method:
    try:
        return find(parameters["method"])
    except KeyError:
        raise StudyError("the parameter method is missing: give a name that robot-rl refine knows") from None
    except ValueError as error:
        raise StudyError(str(error)) from error


def _refined(cell: Cell, out: Path, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    method = _method(parameters)
    kind = method.config_class()
    if own := sorted(parameters.keys() & OWN):
        raise StudyError(f"parameters {own} follow from the study itself: remove them from the file")
    fields = {field.name for field in dataclasses.fields(kind)} - OWN
    if unknown := sorted(parameters.keys() - fields - FURTHER):
        raise StudyError(
            f"parameters {unknown} are none of {kind.__name__}: it has {', '.join(sorted(fields))}"
        )
    parameters = _with_base(cell, out.parent / SHELF, parameters)
    given = {name: value for name, value in parameters.items() if name in fields}
    place = {
        "out": str(out / "refined"),
        "task": cell.task,
        **to_dict(read_settings(cell.options)),
        "seed": cell.seed,
        "resume": (out / "refined" / "config.json").exists(),
    }
    run = method(from_dict(kind, {**given, **place}))
    result = run / "result.json"
    facts = json.loads(result.read_text("utf-8")) if result.exists() else {}
    kept = {name: facts[name] for name in ("env_steps",) if name in facts}
    return {**_evaluation(cell, parameters, run), **kept}


def _evaluation(cell: Cell, parameters: Mapping[str, Any], refiner: Path | None) -> Mapping[str, Any]:
    if not parameters.get("policy"):
        raise StudyError("the parameter policy is missing: give the folder of the base")
    further = parameters.get("evaluation", {})
    if own := sorted(further.keys() & ({"policy", "refiner", "episodes", *OWN} - {"options"})):
        raise StudyError(f"evaluation names {own}, which follow from the study itself: remove them")
    options = {**cell.options, **further.get("options", {})}
    config = from_dict(
        EvaluateConfig,
        {
            **further,
            "policy": parameters["policy"],
            "refiner": [] if refiner is None else [str(refiner)],
            "task": cell.task,
            **to_dict(read_settings(options)),
            "episodes": cell.episodes,
            "seed": cell.first_seed,
            "workers": 1,
            "device": parameters.get("device", "cpu"),
        },
    )
    result = evaluate(config).to_json()
    rows = result["episodes"]
    shares = [name for name in rows[0] if name.endswith("_share")]  # how often a hook acted
    means = {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in shares}
    return {"episodes": rows, "base_hash": result["base_hash"], **means}
