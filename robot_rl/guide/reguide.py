"""Phase-conditioned guidance, the hook of ReGuide (arXiv 2606.28939).

A row in phase k whose predicted next latent has drifted from the phase's prototypes, but is still recoverable
and not yet about to enter the next phase, has its clean estimate moved by

    a' = a - c dL/da,    L = d_scene + 0.2 d_proprioception,

with softmin distances (temperature 0.05) of d(z, a) to the prototypes. The network is not differentiated; the
noise is recomputed from a' at the same x, so that in the project's convention

    v' = (x - a') / sigma = v + c / sigma dL/da.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from data.config import from_dict, to_dict
from robot_rl.guide.hook import GuideModel, LatentHook
from robot_rl.guide.phases import PhaseConfig, PhaseTargets, Progress, softmin
from robot_rl.learn.state_tensors import below
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.context import Context
    from policies.hooks import DenoiseState
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest

_TEMPERATURE = 0.05
_PROPRIOCEPTION = 0.2
_MOST_EPISODES = 4096


class PhaseGuide(LatentHook):
    """Guides rows towards the prototypes of the phase they are in.

    Cost: in each guided step one run of the dynamics, and one backward pass through the dynamics alone where
    a row is guided; the network runs no more often than without.

    Deviations from the released code: rows of a batch are gated and counted each by itself (it runs one
    episode at a time), and distances are in units of spread (see `Latents`).

    Args:
        model: latents and dynamics.
        targets: of the phases.
        config: when a phase is left.
        scale: c.
        guided_steps: number of last steps that may be guided.
        texts: of the tasks that the phases are of; a row is guided by those of the task it is told.
    """

    def __init__(
        self,
        model: GuideModel,
        targets: PhaseTargets,
        config: PhaseConfig,
        *,
        scale: float = 0.01,
        guided_steps: int = 3,
        texts: TaskTexts | None = None,
    ) -> None:
        super().__init__(model, guided_steps, texts)
        if not 0 <= scale < float("inf"):
            raise ValueError(f"scale is {scale}; a number from 0 on is needed (0.01 in the paper)")
        if targets.tasks != self.texts.count:
            raise ValueError(f"the phases are of {targets.tasks} tasks, the texts of {self.texts.count}")
        self.targets, self.config, self.scale = targets, config, scale
        # Of finished episodes nobody tells; the oldest are forgotten.
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._ids: tuple[str, ...] = ()
        self._first = torch.empty(0, dtype=torch.int64)
        self._at = self._next = Progress.start(self._first)
        self._guided = self._distance = torch.empty(0)

    def begin_episode(self, rows: Sequence[str]) -> None:
        """Put these episodes into the first phase."""
        for row in rows:
            self._known.pop(row, None)
            self._known[row] = (0, 0)
        while len(self._known) > max(_MOST_EPISODES, len(rows)):
            self._known.popitem(last=False)

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Encode the rows and recall their phases; see `LatentHook.begin_chunk`.

        Raises:
            ValueError: if rows have no episode ids, by which phases are counted.
        """
        super().begin_chunk(request, policy, context)
        if not request.episode_ids:
            raise ValueError("phases are counted per episode, but the request names none: give episode_ids")
        self._ids = request.episode_ids
        known = [self._known.get(row, (0, 0)) for row in self._ids]
        phase, agreed = torch.tensor(known, device=self._latent.device).T
        self._first = self.task * self.targets.count
        self._at = self._next = Progress(phase + self._first, agreed)
        self._guided = torch.zeros(len(known), dtype=torch.bool, device=self._latent.device)
        self._distance = torch.full((len(known),), torch.nan, device=self._latent.device)

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Move the clean estimate of the gated rows; see the module."""
        self.check_steps(state)
        if not self.acts(state.index):
            return state.x, state.velocity
        with torch.enable_grad():
            clean = state.clean.detach().requires_grad_(True)
            predicted = self.model.predict(self._latent, replace(state, clean=clean))
            seen = predicted.detach()
            gate = self._gate(seen)
            if state.index == state.steps - 1:
                self._next = self._at.advanced(seen, self.targets, self.config)
            if not gate.any():
                return state.x, state.velocity
            (gradient,) = torch.autograd.grad(self._loss(predicted)[gate].sum(), clean)
        self._guided = self._guided | gate
        moved = state.velocity + self.scale / state.sigma * gradient
        return state.x, torch.where(gate[:, None, None], moved, state.velocity)

    def end_chunk(self, chunk: Tensor | None) -> None:
        """Keep the progress of each episode; of a failed sampling nothing is kept."""
        if chunk is None:
            return
        pairs = zip((self._next.phase - self._first).tolist(), self._next.agreed.tolist(), strict=True)
        self._known.update(zip(self._ids, pairs, strict=True))

    def info(self) -> dict[str, Tensor]:
        """Whether a row was guided, its phase, and its last distance to the phase's prototypes, each (B,)."""
        return {
            "reguide.active": self._guided,
            "reguide.phase": self._at.phase - self._first,
            "reguide.distance": self._distance,
        }

    def _gate(self, latent: Tensor) -> Tensor:
        """Rows that have drifted, are recoverable, and are not about to enter the next phase."""
        at, targets = self._at.phase, self.targets
        following = self._at.following(targets)
        self._distance = targets.distance(latent, at)
        drifted = (self._distance > targets.lower[at]) & (self._distance <= targets.upper[at])
        return drifted & (targets.distance(latent, following) > targets.switch[following])

    def _loss(self, latent: Tensor) -> Tensor:
        targets, scene = self.targets, self.model.latents.scene
        goals, used = targets.prototypes[self._at.phase], targets.used[self._at.phase]
        loss = softmin(latent[:, :scene], goals[..., :scene], used, _TEMPERATURE)
        if scene < latent.shape[1]:
            loss = loss + _PROPRIOCEPTION * softmin(latent[:, scene:], goals[..., scene:], used, _TEMPERATURE)
        return loss

    def payload(self) -> dict[str, Any]:
        """Model and settings, JSON types only."""
        settings = {"scale": self.scale, "guided_steps": self.guided_steps}
        told = {"texts": list(self.texts.texts)} if self.texts.texts else {}
        return {"model": self.model.payload(), "config": to_dict(self.config), **settings, **told}

    def tensors(self) -> dict[str, Tensor]:
        """Model and targets."""
        parts = {"model.": self.model.tensors(), "targets.": self.targets.tensors()}
        return {f"{prefix}{key}": value for prefix, part in parts.items() for key, value in part.items()}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the hook; see `robot_rl.parts.SavedPart`."""
        settings = dict(payload)
        model = GuideModel.from_payload(settings.pop("model"), below(tensors, "model."))
        config = from_dict(PhaseConfig, settings.pop("config"))
        texts = TaskTexts(tuple(settings.pop("texts", ())))
        targets = PhaseTargets.from_tensors(below(tensors, "targets."), texts.count)
        return cls(model, targets, config, texts=texts, **settings)
