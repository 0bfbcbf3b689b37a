"""The base of every MuJoCo task: Gymnasium contract, exact save and restore, shared models.

A task subclasses `MujocoTask`, gives class attributes (features, action specification, limits) and five
small methods. Everything that must survive `save` and `restore` lives in three places only: MuJoCo's
integration state, the random generator, and `self.memory` (named arrays). A task that keeps state elsewhere
breaks exactness, so it must not.
"""

from __future__ import annotations

import atexit
import copy
import functools
import weakref
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from sim.frame import Judgement, TaskFrame, expert_generator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.task import Observation, SavedState

__all__ = ["Judgement", "MujocoTask", "copy_model", "expert_generator", "load_model"]

ASSETS = Path(__file__).parent / "assets"
_PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION


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


class MujocoTask(TaskFrame):
    """A MuJoCo task behind the Gymnasium contract; see `TaskFrame` for what every task has.

    Attributes:
        substeps: physics steps per control step.
        memory: named arrays of task state; the only place for it.
        drawn: what pictures show; None is MuJoCo's choice.
    """

    substeps: int = 25
    drawn: mujoco.MjvOption | None = None

    def __init__(self, model: mujoco.MjModel, *, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.model = model
        self.data = mujoco.MjData(model)
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}

    @abstractmethod
    def _begin(self, options: Mapping[str, Any]) -> None:
        """Draw an episode from `self.np_random` into `self.data` (already reset) and `self.memory`."""

    def _clear(self) -> None:
        mujoco.mj_resetData(self.model, self.data)

    def _restored(self) -> None:
        """Rebuild what a task derives from `self.memory`, such as an episode's text, after `restore`."""

    def save(self) -> SavedState:
        """Return everything the future depends on: simulator, task, random state, elapsed steps."""
        physics = np.empty(mujoco.mj_stateSize(self.model, _PHYSICS))
        mujoco.mj_getState(self.model, self.data, physics, _PHYSICS)
        return {"physics": physics, **self._saved_frame()}

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
        self._restore_frame(state)
        self._restored()
        return self._observe()

    def refresh(self) -> None:
        """Bring poses of bodies, geoms and sites up to date with the joints; leave the dynamics alone.

        After a physics step they lag one time step behind. Tasks call this at the end of a control step, so
        that observations are a function of the saved state.
        """
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    def picture(self, camera: str | int = -1, height: int = 480, width: int = 640) -> NDArray[np.uint8]:
        """Render a picture (height, width, 3) from a named camera (-1: the free camera).

        Raises:
            RuntimeError: nothing to draw with is installed.
        """
        renderer = self._renderers.get((height, width)) or self._new_renderer(height, width)
        # Cameras lag behind the bodies, and are unset after a reset.
        mujoco.mj_camlight(self.model, self.data)
        renderer.update_scene(self.data, camera, self.drawn)
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
        # At exit while GL is still there: what is registered last runs first, and weakref's own turn comes
        # after GL's end where a package (numba, with robosuite) used weakref.finalize before GL was loaded.
        atexit.register(weakref.finalize(self, renderer.close))
        self._renderers[height, width] = renderer
        return renderer

    def close(self) -> None:
        """Free the GL contexts, if there are any."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
