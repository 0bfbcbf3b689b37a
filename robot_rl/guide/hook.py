"""What hooks that guide through latent dynamics share: the model, and the last steps in which they act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from policies.hooks import DenoiseHook
from robot_rl.guide.dynamics import LatentDynamics
from robot_rl.guide.latents import Latents, pack, unpack
from robot_rl.task_texts import NO_TEXTS, TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from policies.context import Context
    from policies.hooks import DenoiseState
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest


@dataclass(frozen=True, eq=False)
class GuideModel:
    """Latents and their dynamics, as two kinds of guidance use them.

    Attributes:
        latents: how an observation becomes a latent.
        dynamics: the latent after the executed steps; frozen.
    """

    latents: Latents
    dynamics: LatentDynamics

    def predict(self, latent: Float[Tensor, "B D"], state: DenoiseState) -> Float[Tensor, "B D"]:
        """Return the latent after the executed part of the clean estimate; differentiable.

        Args:
            latent: of the observation.
            state: whose clean estimate is executed.
        """
        spec = state.policy.spec
        chunk = state.policy.decode(state.clean, state.context)
        predicted: Tensor = self.dynamics(latent, chunk[:, spec.executed])
        return predicted

    def payload(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON types."""
        return {"latents": self.latents.payload(), "dynamics": self.dynamics.sizes}

    def tensors(self) -> dict[str, Tensor]:
        """Spread of the latents and weights of the dynamics."""
        return pack(self.latents, "dynamics", self.dynamics)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` gave, on the device of the tensors.

        Raises:
            ValueError: if the weights do not fit.
        """
        return cls(*unpack(payload, tensors, "dynamics", LatentDynamics))


class LatentHook(DenoiseHook):
    """Base of hooks that act in the last denoising steps, on what the dynamics predict.

    Args:
        model: of the latents.
        guided_steps: number of last steps in which the hook may act.
        texts: of the tasks that it tells apart; none by default.

    Attributes:
        task: (B,) number of each row's task, from `begin_chunk` on.
    """

    order = 30

    def __init__(self, model: GuideModel, guided_steps: int, texts: TaskTexts | None = None) -> None:
        if guided_steps < 1:
            raise ValueError(f"guided_steps is {guided_steps}; the last step at least must be guided")
        self.model, self.guided_steps, self.texts = model, guided_steps, texts or NO_TEXTS
        self.keys = self.texts.keys
        self.task = torch.empty(0, dtype=torch.int64)
        self._steps = 0
        self._latent = torch.empty(0)

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Encode the observation; see `DenoiseHook.begin_chunk`.

        Raises:
            ValueError: if the policy executes another number of steps than the dynamics were trained for, or
                denoises in no more steps than are guided; or a row is told none of several known tasks.
        """
        span = self.model.dynamics.sizes["steps"]
        if policy.spec.executed_steps != span:
            raise ValueError(
                f"the policy executes {policy.spec.executed_steps} steps of a chunk, the latent dynamics "
                f"know {span}: refine again for this policy"
            )
        self._steps = len(policy.sigmas()) - 1
        if self.guided_steps >= self._steps:
            raise ValueError(
                f"guided_steps is {self.guided_steps}, but the policy denoises in {self._steps} steps, the "
                "first of which is pure noise: guide fewer"
            )
        self._latent = self.model.latents.encode(request.observation, context)
        number = self.texts.numbers(self.texts.read(request.observation))
        self.task = torch.from_numpy(number).to(self._latent.device)

    def acts(self, index: int) -> bool:
        """Whether step `index` is among the last ones."""
        return index >= self._steps - self.guided_steps

    def check_steps(self, state: DenoiseState) -> None:
        """Refuse a number of denoising steps that is not the policy's own.

        Raises:
            ValueError: if it is another.
        """
        if state.steps != self._steps:
            raise ValueError(
                f"this chunk is denoised in {state.steps} steps, the policy's own number is {self._steps}: "
                "leave steps alone, since which steps are guided follows from it"
            )
