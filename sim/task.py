"""The task contract: what an environment gives through ``env.unwrapped`` beyond Gymnasium's own interface.

`sim.env.MujocoTask` keeps it; so may any environment, simulated or not. Nothing here needs MuJoCo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import gymnasium
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from data.features import Features
    from hardware.action_spec import ActionSpec

type Observation = dict[str, NDArray[Any]]
type SavedState = dict[str, NDArray[Any]]

Need = Literal["max_steps", "control_hz", "expert", "save", "restore", "picture"]
"""What only some uses of a task need: a number of steps, a rate, demonstrations, going back, pictures."""

_ALWAYS = ("features", "action_spec", "task_text")


class TaskError(TypeError):
    """An environment lacks a part of the task contract; the message names it."""


class Expert(Protocol):
    """A scripted demonstrator with access to the true state."""

    def act(self) -> NDArray[np.float64]:
        """Return the next action (A,) in robot units for the environment it was made for."""
        ...


class Task(Protocol):
    """What a task offers. The control loop reads the first three; see `Need` for the rest.

    A task may also have an attribute `robot`, the name that episodes are recorded with.
    """

    @property
    def features(self) -> Features:
        """What an observation contains."""
        ...

    @property
    def action_spec(self) -> ActionSpec:
        """What the numbers of an action mean, SI units; beyond its limits actions are clipped."""
        ...

    @property
    def task_text(self) -> str:
        """The running episode's task in words, for policies that read language."""
        ...

    @property
    def max_steps(self) -> int:
        """Control steps after which the environment truncates an episode itself."""
        ...

    @property
    def control_hz(self) -> float:
        """Control steps per second; equal to the action specification's rate."""
        ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; the same seed and options give the same episode to the bit.

        Args:
            seed: Reseeds the generator; None draws the next episode from it.
            options: What to fix instead of drawing.
        """
        ...

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run one control step; ``info["success"]`` is the outcome by the true state, every step.

        Args:
            action: (A,) in robot units.
        """
        ...

    def expert(self, seed: int) -> Expert:
        """Return a scripted demonstrator for the running episode.

        Args:
            seed: Of its human-like noise; the environment's own random state is not touched.

        Raises:
            NotImplementedError: There is none.
        """
        ...

    def save(self) -> SavedState:
        """Return everything the future depends on."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observation:
        """Go back to what `save` returned, exact to the bit; returns the observation there.

        Raises:
            ValueError: The state belongs to another simulation.
        """
        ...

    def picture(self, camera: str | int = -1, height: int = 480, width: int = 640) -> NDArray[np.uint8]:
        """Draw a picture (height, width, 3) from a named camera; -1 is the free one."""
        ...


def task_of(env: gymnasium.Env[Any, Any], *needs: Need) -> Task:
    """Return the task inside an environment, through any wrappers.

    Args:
        env: Any Gymnasium environment.
        needs: What the caller reads besides `features`, `action_spec` and `task_text`.

    Raises:
        TaskError: The environment lacks one of these; names all that it lacks.
    """
    task: Any = env.unwrapped
    missing = [name for name in (*_ALWAYS, *needs) if not hasattr(task, name)]
    if missing:
        raise TaskError(
            f"{type(task).__name__} is no task that can be used here: it lacks {', '.join(missing)}. Add "
            "what is missing (sim/template_task.py shows how), or derive it from sim.env.MujocoTask."
        )
    found: Task = task
    return found
