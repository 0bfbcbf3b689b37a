"""The three levels of a policy: chunks, open denoising, training.

One convention everywhere: sigma runs from 1 (noise) to 0 (clean), x = (1 - sigma) a + sigma eps, the velocity
is v = eps - a, and the clean estimate is a = x - sigma v. Policies with another native process translate (see
`policies.variance_preserving`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from jaxtyping import Float
from torch import Tensor

from data.features import Feature
from hardware.action_spec import ActionSpec
from policies.errors import PolicyError as PolicyError  # noqa: PLC0414 - policies raise it from here

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from policies.context import Context
    from policies.request import ActionBatch, ChunkRequest, Condition, Observation


@dataclass(frozen=True)
class Supports:
    """What a policy offers beyond plain chunks.

    Attributes:
        noise: the chunk is a deterministic function of the observation and a noise that may be given.
        velocity: the denoising is open (the policy is a `ChunkPolicy`).
        gradients: the velocity is differentiable with respect to x.
        step_noise: the native process draws fresh noise at every step (DDPM). Where none is given it follows
            from the initial noise (`policies.noise.step_noise_of`), so that `noise` still holds.
        conditions: names that `condition` accepts; empty: the policy takes no condition.
        unconditional: trained with condition dropout, so that classifier-free guidance means something.
        position_sigma: trained with a noise level per chunk position, so that sigma (B, H) means something.
    """

    noise: bool = False
    velocity: bool = False
    gradients: bool = False
    step_noise: bool = False
    conditions: tuple[str, ...] = ()
    unconditional: bool = False
    position_sigma: bool = False


@dataclass(frozen=True)
class PolicySpec:
    """The fixed facts of a policy.

    Attributes:
        name: for messages and records, such as "flow".
        features: key -> Feature of every observation the policy reads ("task" is listed in `reads_task`).
        action_spec: groups, units and limits of the A action dimensions.
        observation_steps: number of latest observations in each request, oldest first.
        horizon: H, number of actions in a chunk.
        executed_steps: control steps after which a new chunk is due.
        first_action: index in the chunk of the action that belongs to the newest observation.
        rate_hz: control rate the policy was trained for.
        supports: see `Supports`.
        noise_width: last dimension of the noise; None: A (a padded policy has more).
        reads_task: whether the request must hold task texts under "task".
    """

    name: str
    features: Mapping[str, Feature]
    action_spec: ActionSpec
    observation_steps: int
    horizon: int
    executed_steps: int
    first_action: int
    rate_hz: float
    supports: Supports = field(default_factory=Supports)
    noise_width: int | None = None
    reads_task: bool = False

    def __post_init__(self) -> None:
        if self.observation_steps < 1 or self.horizon < 1:
            raise ValueError(
                f"{self.name}: observation_steps {self.observation_steps} and horizon {self.horizon} "
                "must be at least 1"
            )
        if not 0 <= self.first_action < self.horizon:
            raise ValueError(
                f"{self.name}: first_action {self.first_action} is outside 0 .. {self.horizon - 1}"
            )
        if not 1 <= self.executed_steps <= self.horizon - self.first_action:
            raise ValueError(
                f"{self.name}: executed_steps {self.executed_steps} must be 1 .. "
                f"{self.horizon - self.first_action} (horizon less first_action {self.first_action})"
            )
        if self.rate_hz <= 0:
            raise ValueError(f"{self.name}: rate_hz {self.rate_hz} must be positive")

    @property
    def action_size(self) -> int:
        """A, the number of action dimensions."""
        return self.action_spec.size

    @property
    def executed(self) -> slice:
        """Positions of a chunk that are executed when nothing is late."""
        return slice(self.first_action, self.first_action + self.executed_steps)

    @property
    def noise_shape(self) -> tuple[int, int]:
        """(H, width) of one row's initial noise."""
        width = self.action_size if self.noise_width is None else self.noise_width
        return self.horizon, width


class Policy(ABC):
    """Turns observations into action chunks. Stateless: the caller owns history and noise."""

    @property
    @abstractmethod
    def spec(self) -> PolicySpec:
        """The fixed facts of this policy."""

    @property
    def refiner_version(self) -> str:
        """Version of a refiner that acts within this policy, as behind a server; empty without one."""
        return ""

    def begin_episode(self, rows: Sequence[str]) -> None:  # noqa: B027 - optional on purpose
        """Learn that these episodes start; only a policy with hooks within has anything to forget."""

    @abstractmethod
    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row, in robot units.

        Args:
            request: observation and execution state of B rows.
            noise: initial noise (B, *spec.noise_shape); the same noise gives the same chunk. None: a policy
                that supports noise draws it from torch's global generator, which the control loop never does.
            condition: see `policies.request.Condition`.

        Raises:
            ValueError: if the observation lacks a feature of the spec, or an argument is not supported.
        """

    @abstractmethod
    def hash(self) -> str:
        """Return a SHA-256 of everything that determines the chunks (parameters and buffers)."""


@dataclass(frozen=True)
class Evaluation:
    """One run of the network inside the sampler.

    Attributes:
        x: (B, H, Z) the noisy chunk in the sigma convention; requires grad when it was asked for.
        velocity: (B, H, Z) the velocity there.
        native: what `native_step` needs to repeat the original step to the bit when both were left untouched.
    """

    x: Float[Tensor, "B H Z"]
    velocity: Float[Tensor, "B H Z"]
    native: Any = None


class ChunkPolicy(Policy):
    """A policy whose denoising is open to hooks. x lives in its normalised, padded action space.

    A subclass implements `encode`, `velocity`, `sigmas`, `decode` and `encode_action`. The native process is
    Euler integration of the velocity unless `evaluate` and `native_step` are overridden together.
    """

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the parameters are."""

    @abstractmethod
    def encode(self, observation: Observation, condition: Condition = None) -> Context:
        """Compute everything that does not depend on x or sigma; called once per chunk and condition."""

    @abstractmethod
    def velocity(
        self,
        x: Float[Tensor, "B H Z"],
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"],
        context: Context,
    ) -> Float[Tensor, "B H Z"]:
        """Return v = eps - a at x; differentiable with respect to x where the spec says so."""

    @abstractmethod
    def sigmas(self, steps: int | None = None) -> Float[Tensor, " N"]:
        """Return the decreasing noise levels of the native process, from 1 to 0, one more than `steps`."""

    @abstractmethod
    def decode(self, x: Float[Tensor, "B H Z"], context: Context) -> Float[Tensor, "B H A"]:
        """Undo padding, normalisation and relative actions; differentiable."""

    @abstractmethod
    def encode_action(self, action: Float[Tensor, "B H A"], context: Context) -> Float[Tensor, "B H Z"]:
        """Return robot-unit actions in the space of x (the inverse of `decode`; padding is zero)."""

    def evaluate(
        self, index: int, state: Tensor, sigmas: Tensor, context: Context, *, grad: bool = False
    ) -> Evaluation:
        """Run the network once at step `index` of the native process.

        Args:
            index: 0 .. steps - 1.
            state: native state; for an Euler process that is x itself.
            sigmas: (steps + 1,) as returned by `sigmas`.
            context: of these rows.
            grad: make x a leaf that requires grad and keep the graph.
        """
        x = state.detach().requires_grad_(True) if grad else state
        sigma = sigmas[index].expand(x.shape[0])
        return Evaluation(x, self.velocity(x, sigma, context))

    def native_step(
        self,
        index: int,
        x: Float[Tensor, "B H Z"],
        velocity: Float[Tensor, "B H Z"],
        *,
        sigmas: Float[Tensor, " N"],
        evaluation: Evaluation,
        noise: Float[Tensor, "B H Z"] | None = None,
    ) -> Tensor:
        """Return the next native state.

        Args:
            index: 0 .. steps - 1.
            x: after the hooks; the very object `evaluation.x` if none changed it.
            velocity: after the hooks; the very object `evaluation.velocity` if none changed it.
            sigmas: (steps + 1,) as returned by `sigmas`.
            evaluation: what the network said before the hooks.
            noise: fresh noise of this step, for processes that take it.
        """
        del evaluation, noise
        return x + (sigmas[index + 1] - sigmas[index]) * velocity

    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row in robot units; see `Policy.chunk`."""
        from policies.sampler import sample_chunk

        return sample_chunk(self, request, noise=noise, condition=condition)


class TrainablePolicy(ChunkPolicy):
    """A chunk policy that can make students of itself and score them on data."""

    @abstractmethod
    def student(self, kind: Literal["copy", "lora"] = "copy", *, rank: int = 8) -> TrainablePolicy:
        """Return a policy that starts bit-equal to this one and has parameters of its own.

        Args:
            kind: "copy" owns every parameter; "lora" owns low-rank adapters only and borrows the rest.
            rank: of the adapters.
        """

    @abstractmethod
    def flow_loss(
        self,
        batch: ActionBatch,
        noise: Float[Tensor, "B H Z"] | None = None,
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"] | None = None,
        weights: Float[Tensor, " B"] | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, " B"]:
        """Return the flow-matching loss per row: mean over valid entries of |v(x, sigma) - (eps - a)|^2.

        Args:
            batch: observations and robot-unit chunks.
            noise: eps; None: drawn from torch's global generator.
            sigma: noise levels; None: drawn likewise.
            weights: (B,) multiplies each row's loss.
            mask: (B, H) True where the loss counts, on top of `batch.mask`.
        """


def refuse_opaque(policy: Policy, wanted: str) -> NoReturn:
    """Raise for a policy whose denoising is closed.

    Args:
        policy: the one that was asked.
        wanted: what it was asked for, such as "guidance by hooks".

    Raises:
        PolicyError: always.
    """
    raise PolicyError(
        f"policy {policy.spec.name!r} gives chunks only and keeps its denoising closed, so {wanted} is "
        "impossible; "
        "use a selector or a corrector, or a policy whose spec.supports.velocity is true"
    )


def require_chunk_policy(policy: Policy, wanted: str) -> ChunkPolicy:
    """Return the policy as a `ChunkPolicy`.

    Args:
        policy: any policy.
        wanted: what it is needed for; appears in the message.

    Raises:
        PolicyError: if the policy is opaque.
    """
    if not isinstance(policy, ChunkPolicy):
        refuse_opaque(policy, wanted)
    return policy
