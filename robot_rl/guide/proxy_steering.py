"""Proxy policy steering: two small flows whose difference moves a large frozen one to a task.

PPS (arXiv 2609.09148): v = v_base + gamma (v_task - v_ref), all three at the same x, noise level and
observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import torch

from policies.hooks import DenoiseHook, DenoiseState
from robot_rl.guide.proxy import Proxy
from robot_rl.learn.state_tensors import below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from policies.context import Context
    from policies.policy import ChunkPolicy
    from policies.request import ChunkRequest

Form = Literal["difference", "no_reference", "specialist"]


class ProxySteering(DenoiseHook):
    """Adds the difference of two proxies to the base's velocity.

    Costs two small networks per step, no gradient and no further call of the base.

    Deviation from the paper: the addition is no longer than `cap` times the base's velocity, per row, because
    an unbounded one destabilises a sampler of few steps.

    Args:
        reference: imitates the base on the task's observations.
        task: started from it and was tuned on demonstrations.
        gamma: share of the difference; 0 leaves the base to the bit.
        cap: greatest length of the addition, as a share of the base's velocity.
        form: "difference" is the method; "no_reference" adds gamma v_task, and "specialist" follows the task
            proxy alone: ablations.

    Raises:
        ValueError: if a number is out of range or the proxies are of different shapes.
    """

    order = 20

    def __init__(
        self,
        reference: Proxy,
        task: Proxy,
        *,
        gamma: float = 0.4,
        cap: float = 1.0,
        form: Form = "difference",
    ) -> None:
        if not 0 <= gamma <= 2:
            raise ValueError(f"gamma is {gamma}; it must lie in 0 .. 2.")
        if not 0 < cap <= 100:
            raise ValueError(f"cap is {cap}; it must be above 0 and at most 100.")
        if form not in get_args(Form):
            raise ValueError(f"form is {form!r}; allowed: {', '.join(get_args(Form))}.")
        if reference.payload() != task.payload():
            raise ValueError(
                "The two proxies differ in inputs or size; the task's starts from the reference."
            )
        self.reference = reference.requires_grad_(False).eval()
        self.task = task.requires_grad_(False).eval()
        self.gamma, self.cap, self.form = gamma, cap, form
        self.keys = task.config.inputs
        self._codes: tuple[Tensor, Tensor] | None = None
        self._real = 0
        self._shares: list[Tensor] = []

    def begin_chunk(self, request: ChunkRequest, policy: ChunkPolicy, context: Context) -> None:
        """Read the observation with both proxies.

        Raises:
            ValueError: if they were made for a policy with other chunks.
        """
        del context
        shape, expected = policy.spec.noise_shape, (self.task.config.horizon, self.task.width)
        if shape != expected:
            raise ValueError(f"The proxies are of chunks {expected}, the policy's are {shape}.")
        self._codes = self.reference.encode(request.observation), self.task.encode(request.observation)
        self._real = policy.spec.action_size
        self._shares = []

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        """Add the difference, bounded, in the dimensions that mean something."""
        if self.gamma == 0:
            return state.x, state.velocity
        assert self._codes is not None, "begin_chunk comes first"
        x = state.x.detach()
        sigma = torch.full((len(x),), state.sigma, dtype=x.dtype, device=x.device)
        addition = self.gamma * self.task.velocity(x, sigma, self._codes[1])
        if self.form == "difference":
            addition = addition - self.gamma * self.reference.velocity(x, sigma, self._codes[0])
        if self.form == "specialist":
            addition = addition / self.gamma - state.velocity.detach()
        real = torch.arange(x.shape[2], device=x.device) < self._real
        addition = addition * real
        velocity = state.velocity.detach()
        bound = self.cap * _length(velocity) if self.form == "difference" else torch.inf
        length = _length(addition)
        self._shares.append(length / _length(velocity).clamp(min=1e-12))
        addition = addition * (bound / length.clamp(min=1e-12)).clamp(max=1.0)[:, None, None]
        return state.x, state.velocity + addition

    def info(self) -> Mapping[str, Float[Tensor, " B"]]:
        """How long the addition was before it was bounded, as a share of the base's velocity."""
        return {"pps.share": torch.stack(self._shares).mean(0)} if self._shares else {}

    def end_chunk(self, chunk: Float[Tensor, "B H A"] | None) -> None:
        """Forget the observation."""
        del chunk
        self._codes = None

    def payload(self) -> dict[str, Any]:
        """Configuration of hook and proxies."""
        return {"proxy": self.task.payload(), "gamma": self.gamma, "cap": self.cap, "form": self.form}

    def tensors(self) -> dict[str, Tensor]:
        """Weights of both proxies."""
        proxies = {"reference": self.reference, "task": self.task}
        return {
            f"{name}.{key}": value for name, p in proxies.items() for key, value in p.state_dict().items()
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild it; see `robot_rl.parts.SavedPart`.

        Raises:
            ValueError: if configuration and tensors do not belong together.
        """
        proxies = []
        for name in ("reference", "task"):
            proxy = Proxy.from_payload(payload["proxy"])
            try:
                proxy.load_state_dict(below(tensors, f"{name}."))
            except RuntimeError as error:
                raise ValueError(f"the {name} proxy does not fit its configuration: {error}") from error
            proxies.append(proxy.to(next(iter(tensors.values())).device))
        return cls(*proxies, gamma=payload["gamma"], cap=payload["cap"], form=payload["form"])


def _length(velocity: Tensor) -> Float[Tensor, " B"]:
    length: Tensor = torch.linalg.vector_norm(velocity, dim=(1, 2))
    return length
