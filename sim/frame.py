"""The frame of a simulated task, whatever simulates it: Gymnasium's contract, spaces, episodes, outcomes.

`sim.env.MujocoTask` adds MuJoCo; `sim.pusht` runs on another engine.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from data.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from data.features import Feature, Features
    from hardware.action_spec import ActionSpec
    from sim.task import Expert, Observation

_EXPERT_STREAM = 1
_LIMIT = {"m": 10.0, "m/s": 50.0, "rad": 10.0, "rad/s": 100.0, "N": 1e4, "N m": 1e4}


@dataclass(frozen=True)
class Judgement:
    """What the simulator's true state says after a control step.

    Attributes:
        success: the task is done in this step; ends the episode with reward 1.
        failed: the task can no longer be done; ends the episode with reward 0.
        info: further figures for `info`, such as contact force in N.
    """

    success: bool
    failed: bool = False
    info: dict[str, float | bool] = field(default_factory=dict)


def expert_generator(seed: int) -> np.random.Generator:
    """Return an expert's generator, unrelated to that of an environment reset with the same seed.

    With the same stream, what the expert draws would be a function of where the episode starts.
    """
    return np.random.default_rng((seed, _EXPERT_STREAM))


class TaskFrame(gymnasium.Env["Observation", "NDArray[Any]"], ABC):
    """A simulated task behind the Gymnasium contract, without a simulator.

    Observations are dictionaries under LeRobot keys as `features` describes them. Actions are SI robot units
    within `action_spec`; beyond its limits they are clipped. Reward is 1.0 in the step of success, else 0.0.
    The environment sets `truncated` itself after `max_steps`, and never together with `terminated`.

    Attributes:
        task_text: the task in words, for policies that read language.
        max_steps: control steps after which an episode is truncated.
        control_hz: control steps per second.
        robot: which robot episodes are recorded of.
        features: what an observation contains.
        action_spec: what the numbers of an action mean.
        memory: named arrays of task state.
        elapsed_steps: control steps since reset.
        reset_options: names of what `reset` can be told to fix.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's type
    task_text: str = ""
    max_steps: int = 100
    control_hz: float = 20.0
    robot: str = "simulation"
    reset_options: tuple[str, ...] = ()
    features: Features
    action_spec: ActionSpec

    def __init__(self, *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; allowed: None, 'rgb_array'.")
        self.render_mode = render_mode
        self.memory: dict[str, NDArray[Any]] = {}
        self.elapsed_steps = 0
        boxes: dict[str, spaces.Space[Any]] = {key: _space(feature) for key, feature in self.features.items()}
        self.observation_space = spaces.Dict(boxes)  # type: ignore[assignment] # Dict is typed dict[str, Any]
        self.action_space = spaces.Box(
            self.action_spec.low.astype(np.float32),
            self.action_spec.high.astype(np.float32),
            dtype=np.float32,
        )

    @abstractmethod
    def _begin(self, options: Mapping[str, Any]) -> None:
        """Draw an episode from `self.np_random`."""

    @abstractmethod
    def _advance(self, action: NDArray[np.float64]) -> None:
        """Simulate one control step under a clipped action (A,)."""

    @abstractmethod
    def _observe(self) -> Observation:
        """Read the sensors: fresh arrays, of saved state only."""

    @abstractmethod
    def _judge(self) -> Judgement:
        """Judge the true state after a control step (also called after reset, where success is ignored)."""

    def _clear(self) -> None:
        """Bring the simulator to where every episode begins, before `_begin`."""

    @abstractmethod
    def picture(self, camera: str | int = -1, height: int = 480, width: int = 640) -> NDArray[np.uint8]:
        """Draw a picture (height, width, 3) from a named camera; -1 is the free one."""

    def expert(self, seed: int) -> Expert:
        """Return a scripted demonstrator for the running episode.

        Args:
            seed: seed of its human-like noise; the environment's own random state is not touched.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no scripted expert; write one, see sim/template_task.py."
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; the same seed and options give the same episode to the bit.

        Args:
            seed: reseeds the generator; None draws the next episode from it.
            options: what to fix instead of drawing; `reset_options` lists them.

        Raises:
            ValueError: if an option is unknown or cannot be used.
        """
        _refuse_unknown(options or {}, self.reset_options, type(self).__name__)
        super().reset(seed=seed)
        self.memory.clear()
        self.elapsed_steps = 0
        self._clear()
        self._begin(options or {})
        return self._observe(), {**self._judge().info, "success": False}

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run one control step.

        Args:
            action: (A,) in robot units.

        Raises:
            ValueError: if the action has another shape or holds NaN.
        """
        self._advance(self.action_spec.clip(action))
        self.elapsed_steps += 1
        verdict = self._judge()
        terminated = verdict.success or verdict.failed
        truncated = not terminated and self.elapsed_steps >= self.max_steps
        info = {**verdict.info, "success": verdict.success}
        return self._observe(), float(verdict.success), terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return an RGB picture (480, 640, 3) if `render_mode` is "rgb_array", else None."""
        return self.picture() if self.render_mode == "rgb_array" else None

    def _saved_frame(self) -> dict[str, NDArray[Any]]:
        """What `save` keeps of this frame: random state, elapsed steps, memory."""
        generator = json.dumps(self.np_random.bit_generator.state).encode()
        return {
            "random": np.frombuffer(generator, np.uint8).copy(),
            "elapsed_steps": np.array(self.elapsed_steps),
            **{f"memory.{key}": value.copy() for key, value in self.memory.items()},
        }

    def _restore_frame(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.np_random.bit_generator.state = json.loads(
            np.asarray(state["random"], np.uint8).tobytes().decode()
        )
        self.elapsed_steps = int(state["elapsed_steps"])
        self.memory = {
            k.removeprefix("memory."): v.copy() for k, v in state.items() if k.startswith("memory.")
        }


def _refuse_unknown(options: Mapping[str, Any], known: tuple[str, ...], task: str) -> None:
    if unknown := [name for name in options if name not in known]:
        allowed = f"it has {', '.join(sorted(known))}." if known else "it has none."
        raise ValueError(
            f"{task} has no reset option {unknown[0]!r}; {did_you_mean(unknown[0], known, allowed)}"
        )


def _space(feature: Feature) -> spaces.Box:
    dtype = np.dtype(feature.dtype)
    if dtype == np.uint8:
        return spaces.Box(0, 255, feature.shape, np.uint8)
    limit = _LIMIT.get(feature.unit, 1e4)
    return spaces.Box(-limit, limit, feature.shape, dtype.type)
