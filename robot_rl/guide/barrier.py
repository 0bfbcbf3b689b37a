"""Latent Policy Barrier: steer the denoising so that the next latent comes near a demonstrated one.

Sun et al. 2025, arXiv 2508.05941, section 4. In a row whose observation is far from every demonstrated frame,
the last steps move the noisy chunk along

    x_t <- x_t - eta sqrt(1 - abar_t) g,    g = d/dx_t min_j ||d(z, A0(x_t)) - z_j||,

with A0 the executed part of the clean estimate, and the noise that the network predicted before is kept.

The same in the project's convention: the native x_t is s x with s = sqrt(abar) + sqrt(1 - abar), so that
sqrt(1 - abar) = s sigma, sqrt(abar) = s (1 - sigma), 1 / s^2 = (1 - sigma)^2 + sigma^2, and the gradient with
respect to x is s times that with respect to x_t. Hence

    x' = x - eta sigma sqrt((1 - sigma)^2 + sigma^2) dL/dx,     v' = v - (x' - x) / (1 - sigma),

the second because eps = x + (1 - sigma) v stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from robot_rl.guide.hook import GuideModel, LatentHook
from robot_rl.learn.state_tensors import below
from robot_rl.task_texts import TaskTexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Bool, Float, Int

    from policies.context import Context
    from policies.hooks import DenoiseState
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest

Targets = Literal["expert", "random", "shuffled"]


class LatentBarrier(LatentHook):
    """Guides rows that are further than `threshold` from every demonstrated latent.

    Cost: one encoding's distances per chunk. Where a row is guided, each guided step costs one run of the
    dynamics and one backward pass through dynamics and network; the network runs no more often than without.

    Deviations from the paper: distances are in units of spread (see `Latents`); the gate is per row, and the
    clean estimate is computed in closed form, so that rows that are not gated, and eta 0, repeat the base to
    the bit; steps that are not guided take no gradient.

    Args:
        model: latents and dynamics.
        bank: (N, D) scaled latents of demonstrated frames, by which rows are gated.
        threshold: tau; rows with a distance above it are guided.
        eta: scale of the guidance.
        guided_steps: number of last steps that are guided.
        targets: (M, D) what guidance pulls towards; None: the bank. Others serve as negative controls.
        texts: of the tasks that the bank is of; a row is gated by, and pulled towards, the frames of the task
            it is told.
        owner: (N,) task of each latent of the bank, and of each target; needed with several texts.
    """

    def __init__(
        self,
        model: GuideModel,
        bank: Float[Tensor, "N D"],
        *,
        threshold: float,
        eta: float = 0.05,
        guided_steps: int = 3,
        targets: Float[Tensor, "M D"] | None = None,
        texts: TaskTexts | None = None,
        owner: Int[Tensor, " N"] | None = None,
    ) -> None:
        super().__init__(model, guided_steps, texts)
        if not 0 <= eta < float("inf"):
            raise ValueError(f"eta is {eta}; a number from 0 on is needed (0.05 to 0.2 in the paper)")
        self.threshold, self.eta = threshold, eta
        scene = model.latents.scene
        self._bank = bank[:, :scene]
        self._targets = self._bank if targets is None else targets[:, :scene]
        if self.texts.size and (owner is None or not len(owner) == len(self._bank) == len(self._targets)):
            raise ValueError("with several tasks each latent of bank and targets needs its task: give owner")
        self._owner = owner if self.texts.size else None
        self._own: Tensor | None = None
        self._distance = self._gate = torch.empty(0)

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Encode and gate the rows; see `LatentHook.begin_chunk`."""
        super().begin_chunk(request, policy, context)
        self._own = None if self._owner is None else self._owner == self.task[:, None]
        self._distance = nearest_distance(self._scene(self._latent), self._bank, self._own)
        self._gate = self._distance > self.threshold

    def needs_grad(self, index: int) -> bool:
        """Whether a gradient through the network is wanted: in the last steps, if a row is guided."""
        return self.acts(index) and bool(self._gate.any())

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Move the noisy chunk of the gated rows; see the module."""
        self.check_steps(state)
        if not self.needs_grad(state.index):
            return state.x, state.velocity
        assert state.leaf is not None
        expected = self._scene(self.model.predict(self._latent, state))
        loss = nearest_distance(expected, self._targets, self._own)
        # Retained, because another hook may differentiate the same run of the network.
        (gradient,) = torch.autograd.grad(loss[self._gate].sum(), state.leaf, retain_graph=True)
        sigma = state.sigma
        shift = -self.eta * sigma * ((1 - sigma) ** 2 + sigma**2) ** 0.5 * gradient
        gate = self._gate[:, None, None]
        x = torch.where(gate, state.x + shift, state.x)
        return x, torch.where(gate, state.velocity - shift / (1 - sigma), state.velocity)

    def info(self) -> dict[str, Tensor]:
        """Distance to the nearest demonstrated frame, and whether the row was guided, each (B,)."""
        return {"lpb.distance": self._distance, "lpb.active": self._gate}

    def _scene(self, latent: Tensor) -> Tensor:
        return latent[:, : self.model.latents.scene]

    def payload(self) -> dict[str, Any]:
        """Model and settings, JSON types only."""
        settings = {"threshold": self.threshold, "eta": self.eta, "guided_steps": self.guided_steps}
        told = {"texts": list(self.texts.texts)} if self.texts.texts else {}
        return {"model": self.model.payload(), **settings, **told}

    def tensors(self) -> dict[str, Tensor]:
        """Model, demonstrated latents and targets."""
        own = {"bank": self._bank, "targets": self._targets.clone()}
        own |= {} if self._owner is None else {"owner": self._owner}
        return {**{f"model.{key}": value for key, value in self.model.tensors().items()}, **own}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the hook; see `robot_rl.parts.SavedPart`."""
        settings = dict(payload)
        model = GuideModel.from_payload(settings.pop("model"), below(tensors, "model."))
        texts = TaskTexts(tuple(settings.pop("texts", ())))
        bank, targets, owner = tensors["bank"], tensors["targets"], tensors.get("owner")
        return cls(model, bank, targets=targets, texts=texts, owner=owner, **settings)


def nearest_distance(
    latent: Float[Tensor, "B D"], bank: Float[Tensor, "N D"], own: Bool[Tensor, "B N"] | None = None
) -> Float[Tensor, " B"]:
    """Return min_j ||z - z_j|| per row; differentiable with respect to the latent.

    Args:
        latent: z.
        bank: the z_j.
        own: which of them count for a row; all when None.
    """
    with torch.no_grad():
        # Not by the scalar product, whose cancellation spoils small distances.
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(latent, bank, compute_mode=exact)
        nearest = (distances if own is None else distances.where(own, torch.inf)).argmin(dim=1)
    distance: Tensor = torch.linalg.vector_norm(latent - bank[nearest], dim=1)
    return distance


def control_targets(bank: Float[Tensor, "N D"], targets: Targets, seed: int) -> Float[Tensor, "N D"] | None:
    """Return what guidance pulls towards.

    Args:
        bank: demonstrated latents.
        targets: "expert": the bank itself (None is returned); "random": normal numbers with the bank's mean
            and spread in each dimension; "shuffled": the bank with each dimension permuted by itself, which
            keeps every dimension's values and destroys what belongs together.
        seed: of the two.
    """
    if targets == "expert":
        return None
    generator = torch.Generator().manual_seed(seed)
    if targets == "random":
        return bank.mean(0) + bank.std(0) * torch.randn(bank.shape, generator=generator)
    order = torch.rand(bank.shape, generator=generator).argsort(dim=0)
    return bank.gather(0, order)
