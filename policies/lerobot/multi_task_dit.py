"""LeRobot's multi-task diffusion transformer, opened; it comes with a diffusion or a flow-matching objective.

The flow runs from t = 0 (noise) to 1 (clean): here sigma = 1 - t, and the velocity changes its sign. With its
``sigma_min`` above 0 the clean end of the path is a + sigma_min eps, and that is what a hook sees as clean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from policies.context import TensorContext
from policies.lerobot.base import STATE, LeRobotChunkPolicy, LeRobotPolicy
from policies.lerobot.scheduled import IMAGES, ScheduledPolicy, with_stacked_images
from policies.lerobot.scheduler import Scheduler
from policies.parity import drawing
from policies.policy import Evaluation, Supports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from policies.context import Context
    from policies.request import Condition, Observation


class _MultiTaskDit(LeRobotChunkPolicy):
    """What both objectives share: the observation's code and the transformer."""

    keeps_time: ClassVar[bool] = True

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Encode images, state and text into one vector per row; see `ChunkPolicy.encode`."""
        if condition is not None:
            raise ValueError(f"policy {self.spec.name!r} takes no condition, got {condition!r}")
        vector: Tensor = self.model.observation_encoder.encode(self._batch(observation))
        return self.with_origin({"observation": vector}, observation)

    def ask(self, x: Tensor, time: Float[Tensor, " B"], context: Context) -> Tensor:
        """Return what the transformer says of x at LeRobot's own time."""
        assert isinstance(context, TensorContext)
        said: Tensor = self.model.noise_predictor(x, time, conditioning_vec=context["observation"])
        return said

    @torch.no_grad()
    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk, its queues filled; see `LeRobotPolicy.original`."""
        self.model.reset()
        batch = self._batch(observation)
        for key in (STATE, IMAGES):
            for moment in batch[key].unbind(1) if key in batch else ():
                self.model._queues[key].append(moment)  # noqa: SLF001 - only its select_action fills them
        start = [] if noise is None else [noise]
        with drawing(*start, *step_noise[:-1]):
            chunk: Tensor = self.model.predict_action_chunk(batch)
        self.model.reset()
        return chunk

    def _batch(self, observation: Observation) -> dict[str, Tensor]:
        return with_stacked_images(self.prepare(observation), self.model.config.image_features)


class MultiTaskDitDiffusion(_MultiTaskDit, ScheduledPolicy):
    """LeRobot's `MultiTaskDiTPolicy` with the diffusion objective."""

    def make_scheduler(self) -> Scheduler:
        """Return the steps of the process."""
        objective = self.model.objective
        return Scheduler(objective.noise_scheduler, objective.num_inference_steps)

    def predict(
        self, native: Float[Tensor, "B H A"], alpha_bar: Float[Tensor, " B"], context: Context
    ) -> Float[Tensor, "B H A"]:
        """Return what the transformer says; see `VariancePreservingPolicy.predict`."""
        return self.ask(native, self.scheduler.timestep_of(alpha_bar), context)


class MultiTaskDitFlow(_MultiTaskDit):
    """LeRobot's `MultiTaskDiTPolicy` with the flow-matching objective, by Euler steps or Runge-Kutta steps.

    A Runge-Kutta step asks the network four times. Hooks see the first; what they change is added to all
    four.
    """

    @classmethod
    def supports(cls, config: Any) -> Supports:  # noqa: ANN401 - a configuration of LeRobot
        """Return that the denoising is open."""
        del config
        return Supports(noise=True, velocity=True, gradients=True)

    def velocity(
        self, x: Float[Tensor, "B H A"], sigma: Float[Tensor, " B"] | Float[Tensor, "B H"], context: Context
    ) -> Float[Tensor, "B H A"]:
        """Return v = eps - a at x; one noise level per row.

        Raises:
            ValueError: if sigma differs along the chunk, which this network cannot read.
        """
        if sigma.ndim != 1:
            raise ValueError(f"policy {self.spec.name!r} takes one sigma per row, not {tuple(sigma.shape)}")
        return -self.ask(x, 1 - sigma, context)

    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return 1 - t for LeRobot's equally spaced t."""
        return 1 - self._times(steps)

    def evaluate(
        self, index: int, state: Tensor, sigmas: Tensor, context: Context, *, grad: bool = False
    ) -> Evaluation:
        """Run the network at LeRobot's own t, which 1 - sigma misses by a bit; see `ChunkPolicy.evaluate`."""
        x = state.detach().requires_grad_(True) if grad else state
        time = self._times(len(sigmas) - 1)[index]
        return Evaluation(x, -self.ask(x, time.expand(len(x)).to(x), context), context)

    def native_step(
        self,
        index: int,
        x: Float[Tensor, "B H A"],
        velocity: Float[Tensor, "B H A"],
        *,
        sigmas: Float[Tensor, " N"],
        evaluation: Evaluation,
        noise: Float[Tensor, "B H A"] | None = None,
    ) -> Tensor:
        """Return the next x; see `ChunkPolicy.native_step`."""
        del noise
        times = self._times(len(sigmas) - 1)
        time, length = float(times[index]), float(times[index + 1] - times[index])
        if self.model.config.integration_method == "euler":
            return x - length * velocity
        added = None if velocity is evaluation.velocity else evaluation.velocity - velocity
        return self._runge_kutta(x, -velocity, time, length, added=added, context=evaluation.native)

    @torch.no_grad()
    def _runge_kutta(
        self, x: Tensor, first: Tensor, time: float, length: float, *, added: Tensor | None, context: Context
    ) -> Tensor:
        """One step of the classical fourth order along LeRobot's velocity, plus what hooks added to it."""

        def slope(at: Tensor, later: float) -> Tensor:
            said = self.ask(at, torch.full((len(at),), later, dtype=at.dtype, device=at.device), context)
            return said if added is None else said + added

        second = slope(x + length * first / 2, time + length / 2)
        third = slope(x + length * second / 2, time + length / 2)
        fourth = slope(x + length * third, time + length)
        return x + length / 6 * (first + 2 * second + 2 * third + fourth)

    def _times(self, steps: int | None) -> Float[Tensor, " N"]:
        count = self.model.config.num_integration_steps if steps is None else steps
        if count < 1:
            raise ValueError(f"steps is {count}; at least one denoising step is needed")
        return torch.linspace(0, 1, count + 1, device=self.device)


def multi_task_dit(config: Any) -> type[LeRobotPolicy]:  # noqa: ANN401 - a configuration of LeRobot
    """Return the adapter of a configuration's objective."""
    flow = config.objective == "flow_matching"
    return cast("type[LeRobotPolicy]", MultiTaskDitFlow if flow else MultiTaskDitDiffusion)
