"""What the cells of a study will cost, from rates measured on this machine."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robot_rl.study.cell import learning_steps, read_cell
from robot_rl.study.plan import Cell, Method, Study, StudyError, cells
from robot_rl.task_settings import read_settings

# Network inference and learning beside the simulation; measured on the demo, where a step of refinement costs
# about five times the bare simulation.
LEARNING_FACTOR = 5.0


@dataclass(frozen=True)
class Prediction:
    """Cost of the cells that are not finished yet."""

    cells: int
    core_hours: float
    basis: Mapping[str, str]
    """by method: from what it is predicted"""


def predict(study: Study) -> Prediction:
    """Predict the core-hours of the cells that are missing.

    A method's cost per cell is the mean of its finished cells on the task; else what the file states; else
    it is predicted from the task's speed, which is measured here for a second.
    """
    missing = [cell for cell in cells(study) if read_cell(cell, study.results) is None]
    methods = {method.name: method for method in study.methods}
    speeds: dict[str, float] = {}
    hours, basis = 0.0, {}
    for cell in missing:
        seconds, why = _cell_seconds(cell, methods[cell.method], study, speeds)
        hours += seconds / 3600
        basis[cell.method] = why
    return Prediction(len(missing), hours, basis)


def check_budget(prediction: Prediction, budget: float) -> None:
    """Refuse a study that would cost more than its budget.

    Args:
        prediction: what it will cost.
        budget: core-hours.

    Raises:
        StudyError: names both, and on what the prediction rests.
    """
    if not budget >= 0:
        raise StudyError(f"the budget is {budget}, allowed is 0 or more core-hours")
    if prediction.core_hours > budget:
        reasons = "; ".join(f"{method} from {why}" for method, why in prediction.basis.items())
        raise StudyError(
            f"{prediction.cells} cells would take {prediction.core_hours:.1f} core-hours ({reasons}), "
            f"the budget is {budget:g}: shrink the grid, or raise budget_core_hours or --budget deliberately"
        )


def _cell_seconds(cell: Cell, method: Method, study: Study, speeds: dict[str, float]) -> tuple[float, str]:
    finished = [read_cell(other, study.results) for other in _like(cell, study)]
    measured = [one.core_seconds for one in finished if one is not None]
    if measured:
        return statistics.mean(measured), f"{len(measured)} finished cells"
    if method.core_minutes is not None:
        return 60 * method.core_minutes, "core_minutes in the file"
    speed, longest = _speed(cell, speeds)
    training = learning_steps(cell)
    seconds = (LEARNING_FACTOR * training + 2 * cell.episodes * longest) / speed
    return seconds, f"{speed:.0f} simulation steps/s measured here"


def _like(cell: Cell, study: Study) -> Sequence[Cell]:
    return [other for other in cells(study) if (other.method, other.task) == (cell.method, cell.task)]


def _speed(cell: Cell, known: dict[str, float]) -> tuple[float, int]:
    """Control steps per second of a task, and the most steps of an episode."""
    import sim
    from sim.task import task_of

    env = sim.make(cell.task, **read_settings(cell.options).task_arguments)
    task = task_of(env, "max_steps")
    if cell.task not in known:
        env.reset(seed=0)
        env.action_space.seed(0)
        steps, started = 0, time.process_time()
        while time.process_time() - started < 1.0 and steps < 5000:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            steps += 1
            if terminated or truncated:
                env.reset(seed=0)
        known[cell.task] = steps / max(time.process_time() - started, 1e-6)
    env.close()
    return known[cell.task], int(task.max_steps)
