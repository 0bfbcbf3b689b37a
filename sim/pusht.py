"""PushT: push a T onto its outline, simulated by gym-pusht, after the task of Diffusion Policy.

Physics, start states and success are gym-pusht's own: a seed starts as in `gym_pusht/PushT-v0`, and the same
targets give the same steps. Needs the extra `pusht`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import Feature
from data.formats.extras import require
from hardware.action_spec import ActionGroup, ActionSpec
from sim.frame import Judgement, TaskFrame
from sim.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gym_pusht.envs.pusht import PushTEnv
    from numpy.typing import ArrayLike, NDArray

    from sim.pusht_expert import PushTExpert
    from sim.task import Observation, SavedState

SIZE = 512.0
"""Edge of the arena, px; y points down in pictures."""
CORNERS = 8
_START_LOW, _START_HIGH = (50, 50, 100, 100), (450, 450, 400, 400)
_WHITE = 255
_DECIMALS = 6
"""Of the coverage: the last bit of an area by GEOS depends on where its points happen to lie in memory."""


class PushT(TaskFrame):
    """Success: the T covers more than 95 % of its goal within 300 steps at 10 Hz.

    The action (2,) is where the agent should be, absolute, 0 to 512 px, as gym-pusht and policies for it have
    it. The observation is gym-pusht's `environment_state_agent_pos` under LeRobot's keys for it: the agent's
    centre and the corners of the T.

    `info` holds `coverage`, the share of the goal that is covered, and `contact`, whether anything touched
    anything in this step.

    Reset options: `state`, the agent's (x, y), the T's (x, y) in px and its angle in rad, as gym-pusht takes
    it (it turns the T about its centre of mass after placing it, so the T ends up elsewhere).

    Attributes:
        simulator: gym-pusht's environment.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's type
    task_text = "push the T onto its outline"
    max_steps = 300
    control_hz = 10.0
    reset_options = ("state",)
    features = {  # noqa: RUF012 - read-only by convention
        "observation.state": Feature(
            (2,), "float32", "px", ("agent.x", "agent.y"), "centre of the agent; y points down"
        ),
        "observation.environment_state": Feature(
            (2 * CORNERS,),
            "float32",
            "px",
            tuple(f"corner{i}.{axis}" for i in range(CORNERS) for axis in "xy"),
            "corners of the T: of its bar, then of its stem",
        ),
    }
    action_spec = ActionSpec(
        (ActionGroup("agent", 2, "absolute", "position", "world", unit="px", low=(0.0,), high=(SIZE,)),), 10.0
    )

    def __init__(self, *, render_mode: str | None = None) -> None:
        """Build the task.

        Args:
            render_mode: None or `rgb_array`.

        Raises:
            ImportError: gym-pusht is not installed.
            ValueError: for another render mode.
        """
        super().__init__(render_mode=render_mode)
        self.simulator = _simulator()
        self._facts: dict[str, float | bool] = {}

    @property
    def agent(self) -> NDArray[np.float64]:
        """(2,) centre of the agent, px."""
        return np.array(self.simulator.agent.position)

    @property
    def block(self) -> NDArray[np.float64]:
        """(3,) origin of the T (the middle of its bar's outer edge), px, and its angle, rad."""
        return np.array([*self.simulator.block.position, self.simulator.block.angle])

    def expert(self, seed: int) -> PushTExpert:
        """Return a scripted demonstrator that tries its pushes in a copy of the physics."""
        from sim.pusht_expert import PushTExpert

        return PushTExpert(self, seed)

    def _begin(self, options: Mapping[str, Any]) -> None:
        # These five draws are gym-pusht's, in its order.
        places = [float(self.np_random.integers(*span)) for span in zip(_START_LOW, _START_HIGH, strict=True)]
        drawn = [*places, self.np_random.uniform(-np.pi, np.pi)]
        self.memory["start"] = _start(options.get("state", drawn))
        self.memory["actions"] = np.zeros((0, 2))
        self._play()

    def _advance(self, action: NDArray[np.float64]) -> None:
        self.memory["actions"] = np.vstack([self.memory["actions"], action])
        self._step(action)

    def _play(self) -> None:
        """Bring the simulator to where the memory says: its start, then every action since."""
        self.simulator.reset(options={"reset_to_state": self.memory["start"]})
        coverage = self.simulator._get_coverage()  # noqa: SLF001 - its reset says everything but this
        self._facts = {"coverage": round(float(coverage), _DECIMALS), "contact": False}
        for action in self.memory["actions"]:
            self._step(action)

    def _step(self, action: NDArray[np.float64]) -> None:
        *_, info = self.simulator.step(action)
        self._facts = {
            "coverage": round(float(info["coverage"]), _DECIMALS),
            "contact": bool(info["n_contacts"]),
        }

    def _observe(self) -> Observation:
        seen = self.simulator.get_obs()
        return {
            "observation.state": seen["agent_pos"].astype(np.float32),
            "observation.environment_state": seen["environment_state"].astype(np.float32),
        }

    def _judge(self) -> Judgement:
        return Judgement(self._facts["coverage"] > self.simulator.success_threshold, info=dict(self._facts))

    def save(self) -> SavedState:
        """Return the start and the actions since, the random state and the elapsed steps.

        pymunk keeps impulses of past contacts that cannot be written back, so a state is how to get there.
        """
        return self._saved_frame()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observation:
        """Go back to a saved state by running its episode again, exact to the bit; 0.3 ms per elapsed step.

        Raises:
            ValueError: the state belongs to another simulation.
        """
        for key, width in (("memory.start", 5), ("memory.actions", 2)):
            found = np.shape(state.get(key, 0.0))
            if not found or found[-1] != width:
                raise ValueError(
                    f"the state holds {key} of shape {found}; a state of PushT has (..., {width})."
                )
        self._restore_frame(state)
        self._play()
        return self._observe()

    def picture(self, camera: str | int = -1, height: int = 480, width: int = 640) -> NDArray[np.uint8]:
        """Draw the arena from above (height, width, 3), as large as fits, white beside it.

        Args:
            camera: there is one, `top` or -1.
            height: of the picture, px.
            width: of the picture, px.

        Raises:
            ValueError: for another camera.
        """
        if camera not in ("top", -1):
            raise ValueError(f"camera is {camera!r}; allowed: 'top', -1.")
        edge = min(height, width)
        self.simulator.visualization_width = self.simulator.visualization_height = edge
        frame = np.full((height, width, 3), _WHITE, np.uint8)
        top, left = (height - edge) // 2, (width - edge) // 2
        frame[top : top + edge, left : left + edge] = self.simulator.render()
        return frame


def _start(state: ArrayLike) -> NDArray[np.float64]:
    start = np.array(state, np.float64)
    if start.shape != (5,) or not np.isfinite(start).all():
        raise ValueError(
            f"reset option state is {state!r}; give five numbers: agent x and y, T x and y (px), angle (rad)."
        )
    return start


def _simulator() -> PushTEnv:
    """Build gym-pusht's environment; in this mode it opens no window, but draws on surfaces in memory."""
    with undisturbed():
        module = require("gym_pusht.envs.pusht", "pusht", "The task pusht")
    made: PushTEnv = module.PushTEnv(obs_type="environment_state_agent_pos", render_mode="rgb_array")
    return made
