"""The base of every MuJoCo task: Gymnasium contract, exact save and restore, shared models.

A task subclasses `MujocoTask`, gives class attributes (features, action specification, limits) and five
small methods. Everything that must survive `save` and `restore` lives in three places only: MuJoCo's
integration state, the random generator, and `self.memory` (named arrays). A task that keeps state elsewhere
breaks exactness, so it must not.
"""

from __future__ import annotations

import copy
import functools
import json
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

from data.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from data.features import Feature, Features
    from hardware.action_spec import ActionSpec
    from sim.task import Expert, Observation, SavedState

ASSETS = Path(__file__).parent / "assets"
_PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION
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


@functools.cache
def load_model(file: str) -> mujoco.MjModel:
    """Compile an MJCF file once per process; the result is shared and never changed.

    Args:
        file: name inside sim/assets, or an absolute path.
    """
    return mujoco.MjModel.from_xml_path(str(ASSETS / file))


def copy_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a private copy of a shared model, for an environment whose physics differ."""
    return copy.copy(model)


def expert_generator(seed: int) -> np.random.Generator:
    """Return an expert's generator, unrelated to that of an environment reset with the same seed.

    With the same stream, what the expert draws would be a function of where the episode starts.
    """
    return np.random.default_rng((seed, _EXPERT_STREAM))


class MujocoTask(gymnasium.Env["Observation", "NDArray[Any]"], ABC):
    """A MuJoCo task behind the Gymnasium contract.

    Observations are dictionaries under LeRobot keys as `features` describes them. Actions are SI robot units
    within `action_spec`; beyond its limits they are clipped. Reward is 1.0 in the step of success, else 0.0.
    The environment sets `truncated` itself after `max_steps`, and never together with `terminated`.

    Attributes:
        task_text: the task in words, for policies that read language.
        max_steps: control steps after which an episode is truncated.
        control_hz: control steps per second.
        robot: which robot episodes are recorded of.
        substeps: physics steps per control step.
        features: what an observation contains.
        action_spec: what the numbers of an action mean.
        memory: named arrays of task state; the only place for it.
        elapsed_steps: control steps since reset.
        reset_options: names of what `reset` can be told to fix.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's type
    task_text: str = ""
    max_steps: int = 100
    control_hz: float = 20.0
    robot: str = "simulation"
    substeps: int = 25
    reset_options: tuple[str, ...] = ()
    features: Features
    action_spec: ActionSpec

    def __init__(self, model: mujoco.MjModel, *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; allowed: None, 'rgb_array'.")
        self.render_mode = render_mode
        self.model = model
        self.data = mujoco.MjData(model)
        self.memory: dict[str, NDArray[Any]] = {}
        self.elapsed_steps = 0
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}
        boxes: dict[str, spaces.Space[Any]] = {key: _space(feature) for key, feature in self.features.items()}
        self.observation_space = spaces.Dict(boxes)  # type: ignore[assignment] # Dict is typed dict[str, Any]
        self.action_space = spaces.Box(
            self.action_spec.low.astype(np.float32),
            self.action_spec.high.astype(np.float32),
            dtype=np.float32,
        )

    @abstractmethod
    def _begin(self, options: Mapping[str, Any]) -> None:
        """Draw an episode from `self.np_random` into `self.data` (already reset) and `self.memory`."""

    @abstractmethod
    def _advance(self, action: NDArray[np.float64]) -> None:
        """Simulate one control step under a clipped action (A,)."""

    @abstractmethod
    def _observe(self) -> Observation:
        """Read the sensors: fresh arrays, from `self.data` and `self.memory` only."""

    @abstractmethod
    def _judge(self) -> Judgement:
        """Judge the true state after a control step (also called after reset, where success is ignored)."""

    def _restored(self) -> None:
        """Rebuild what a task derives from `self.memory`, such as an episode's text, after `restore`."""

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
        mujoco.mj_resetData(self.model, self.data)
        self.memory.clear()
        self.elapsed_steps = 0
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

    def save(self) -> SavedState:
        """Return everything the future depends on: simulator, task, random state, elapsed steps."""
        physics = np.empty(mujoco.mj_stateSize(self.model, _PHYSICS))
        mujoco.mj_getState(self.model, self.data, physics, _PHYSICS)
        generator = json.dumps(self.np_random.bit_generator.state).encode()
        return {
            "physics": physics,
            "random": np.frombuffer(generator, np.uint8).copy(),
            "elapsed_steps": np.array(self.elapsed_steps),
            **{f"memory.{key}": value.copy() for key, value in self.memory.items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observation:
        """Go back to a saved state; what follows is equal to the bit to what followed `save`.

        Args:
            state: what `save` returned, of this task and the same options.

        Returns:
            The observation at that state.

        Raises:
            ValueError: if the state belongs to another simulation.
        """
        size = mujoco.mj_stateSize(self.model, _PHYSICS)
        physics = np.asarray(state["physics"], np.float64)
        if physics.shape != (size,):
            raise ValueError(
                f"the state holds physics of shape {physics.shape}; this simulation has ({size},)."
            )
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, physics, _PHYSICS)
        self.refresh()
        self.np_random.bit_generator.state = json.loads(
            np.asarray(state["random"], np.uint8).tobytes().decode()
        )
        self.elapsed_steps = int(state["elapsed_steps"])
        self.memory = {
            k.removeprefix("memory."): v.copy() for k, v in state.items() if k.startswith("memory.")
        }
        self._restored()
        return self._observe()

    def refresh(self) -> None:
        """Bring poses of bodies, geoms and sites up to date with the joints; leave the dynamics alone.

        After a physics step they lag one time step behind. Tasks call this at the end of a control step, so
        that observations are a function of the saved state.
        """
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    def render(self) -> NDArray[np.uint8] | None:
        """Return an RGB picture (480, 640, 3) if `render_mode` is "rgb_array", else None."""
        return self.picture() if self.render_mode == "rgb_array" else None

    def picture(self, camera: str | int = -1, height: int = 480, width: int = 640) -> NDArray[np.uint8]:
        """Render a picture (height, width, 3) from a named camera (-1: the free camera).

        Raises:
            RuntimeError: nothing to draw with is installed.
        """
        renderer = self._renderers.get((height, width)) or self._new_renderer(height, width)
        # Cameras lag behind the bodies, and are unset after a reset.
        mujoco.mj_camlight(self.model, self.data)
        renderer.update_scene(self.data, camera)
        frame: NDArray[np.uint8] = renderer.render().copy()
        return frame

    def _new_renderer(self, height: int, width: int) -> mujoco.Renderer:
        try:
            renderer = mujoco.Renderer(self.model, height, width)
        except (mujoco.FatalError, ImportError, AttributeError) as error:
            raise RuntimeError(
                f"MuJoCo cannot draw off screen ({error}). Install libegl1 or libosmesa6, and import sim "
                "before mujoco or set MUJOCO_GL to egl or osmesa."
            ) from error
        weakref.finalize(self, renderer.close)  # also at exit, while GL is still there
        self._renderers[height, width] = renderer
        return renderer

    def close(self) -> None:
        """Free the GL contexts, if there are any."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()


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
