"""A checker for policies, ours and other people's: what every policy promises, tried on random inputs."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.checkpoint import Savable, load, save
from policies.hooks import DenoiseHook
from policies.policy import ChunkPolicy, Policy, TrainablePolicy
from policies.request import ActionBatch, ChunkRequest
from policies.sampler import sample_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROWS = 3
_ROW_TOLERANCE = 1e-5


class ConformanceError(AssertionError):
    """A policy breaks its interface; the message lists every broken promise."""


def check_policy(policy: Policy, *, seed: int = 0) -> tuple[str, ...]:
    """Try every promise that the policy's spec makes.

    Args:
        policy: fitted, on any device. It is not changed.
        seed: of the random observations and noise.

    Returns:
        The promises that were tried.

    Raises:
        ConformanceError: listing what is broken.
    """
    generator = torch.Generator().manual_seed(seed)
    before = policy.hash()
    broken = []
    tried = []
    for check in _checks(policy):
        tried.append(check.__name__.strip("_").replace("_", " "))
        try:
            check(policy, generator)
        except Exception as error:  # noqa: BLE001 - whatever a foreign policy raises is a finding
            broken.append(f"{tried[-1]}: {type(error).__name__}: {error}")
    if policy.hash() != before:
        broken.append("the hash changed while the policy was only used")
    if broken:
        raise ConformanceError(f"policy {policy.spec.name!r}: " + "\n  ".join(["", *broken]).lstrip("\n"))
    return tuple(tried)


def random_request(policy: Policy, generator: torch.Generator, rows: int = _ROWS) -> ChunkRequest:
    """Return a request with random observations of the policy's features.

    Args:
        policy: whose features are drawn.
        generator: on the CPU.
        rows: B.
    """
    steps = policy.spec.observation_steps
    observation: dict[str, Tensor | list[str]] = {}
    for key, feature in policy.spec.features.items():
        shape = (rows, steps, *feature.shape)
        if feature.dtype == "uint8":
            observation[key] = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        else:
            observation[key] = torch.randn(shape, generator=generator)
    if policy.spec.reads_task:
        observation["task"] = [f"do task {row}" for row in range(rows)]
    return ChunkRequest(observation)


def _noise(policy: Policy, generator: torch.Generator, rows: int = _ROWS) -> Tensor | None:
    if not policy.spec.supports.noise:
        return None
    return torch.randn(rows, *policy.spec.noise_shape, generator=generator)


def _checks(policy: Policy) -> Iterator[Callable[[Policy, torch.Generator], None]]:
    yield _chunk_has_shape_and_is_finite
    yield _same_input_gives_same_chunk
    yield _rows_are_independent
    yield _missing_feature_is_refused
    if isinstance(policy, ChunkPolicy):
        yield _spec_says_velocity
        yield _sigmas_fall_from_one_to_zero
        yield _identity_hook_changes_nothing
        yield _actions_survive_the_round_trip
    if policy.spec.supports.gradients:
        yield _velocity_is_differentiable
    if isinstance(policy, TrainablePolicy):
        yield _students_start_equal_and_own_their_parameters
        yield _loss_has_one_value_per_row
    if isinstance(policy, Savable):
        yield _saved_and_loaded_it_is_the_same


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


def _chunk_has_shape_and_is_finite(policy: Policy, generator: torch.Generator) -> None:
    chunk = policy.chunk(random_request(policy, generator), noise=_noise(policy, generator))
    expected = (_ROWS, policy.spec.horizon, policy.spec.action_size)
    _require(tuple(chunk.shape) == expected, f"shape {tuple(chunk.shape)}, expected {expected}")
    _require(chunk.dtype == torch.float32, f"type {chunk.dtype}, expected float32")
    _require(bool(chunk.isfinite().all()), "values that are not finite")
    _require(not chunk.requires_grad, "the chunk carries a graph")


def _same_input_gives_same_chunk(policy: Policy, generator: torch.Generator) -> None:
    request, noise = random_request(policy, generator), _noise(policy, generator)
    first, second = (policy.chunk(request, noise=noise) for _ in range(2))
    _require(torch.equal(first, second), "two calls with the same observation and noise differ")


def _rows_are_independent(policy: Policy, generator: torch.Generator) -> None:
    request, noise = random_request(policy, generator), _noise(policy, generator)
    together = policy.chunk(request, noise=noise)
    for row in range(_ROWS):
        own = None if noise is None else noise[row : row + 1]
        alone = policy.chunk(request.rows([row]), noise=own)
        scale = max(float(together[row].abs().max()), 1e-6)
        gap = float((together[row] - alone[0]).abs().max()) / scale
        _require(gap <= _ROW_TOLERANCE, f"row {row} alone differs by {gap:.1e} of its size from the batch")


def _missing_feature_is_refused(policy: Policy, generator: torch.Generator) -> None:
    request, noise = random_request(policy, generator), _noise(policy, generator)
    for key in policy.spec.features:
        rest: dict[str, Tensor | list[str]] = {"unrelated": torch.zeros(_ROWS, 1)}
        rest |= {k: v for k, v in request.observation.items() if k != key}  # type: ignore[misc] # lists stay lists
        try:
            policy.chunk(ChunkRequest(rest), noise=noise)
        except (ValueError, KeyError):
            continue
        raise ConformanceError(f"no error although {key!r} was missing")


def _spec_says_velocity(policy: Policy, generator: torch.Generator) -> None:
    del generator
    supports = policy.spec.supports
    _require(
        supports.velocity and supports.noise, "a ChunkPolicy supports noise and velocity; the spec denies it"
    )


def _sigmas_fall_from_one_to_zero(policy: Policy, generator: torch.Generator) -> None:
    del generator
    assert isinstance(policy, ChunkPolicy)
    for sigmas in (policy.sigmas(), policy.sigmas(3)):
        falling = bool((sigmas.diff() < 0).all())
        _require(falling and float(sigmas[-1]) == 0, f"sigmas {sigmas.tolist()} do not fall to 0")
    _require(len(policy.sigmas(3)) == 4, "sigmas(3) holds other than 4 levels")


def _identity_hook_changes_nothing(policy: Policy, generator: torch.Generator) -> None:
    assert isinstance(policy, ChunkPolicy)
    request, noise = random_request(policy, generator), _noise(policy, generator)
    plain = policy.chunk(request, noise=noise)
    hooks: list[DenoiseHook] = [DenoiseHook()]
    if policy.spec.supports.gradients:
        hooks.append(_AsksForGradients())
    hooked = sample_chunk(policy, request, noise, hooks)
    _require(torch.equal(plain, hooked), "a hook that returns its input changes the chunk")


class _AsksForGradients(DenoiseHook):
    def needs_grad(self, index: int) -> bool:
        return index % 2 == 0


def _actions_survive_the_round_trip(policy: Policy, generator: torch.Generator) -> None:
    assert isinstance(policy, ChunkPolicy)
    context = policy.encode(random_request(policy, generator).observation)
    chunk = policy.decode(
        torch.randn(_ROWS, *policy.spec.noise_shape, generator=generator).to(policy.device), context
    )
    again = policy.decode(policy.encode_action(chunk, context), context)
    scale = max(float(chunk.abs().max()), 1e-6)
    gap = float((chunk - again).abs().max()) / scale
    _require(gap < 1e-4, f"decode(encode_action(a)) differs from a by {gap:.1e} of its size")


def _velocity_is_differentiable(policy: Policy, generator: torch.Generator) -> None:
    assert isinstance(policy, ChunkPolicy)
    context = policy.encode(random_request(policy, generator).observation)
    x = torch.randn(_ROWS, *policy.spec.noise_shape, generator=generator).to(policy.device).requires_grad_()
    sigma = torch.full((_ROWS,), 0.5, device=policy.device)
    (gradient,) = torch.autograd.grad(policy.velocity(x, sigma, context)[0].sum(), x)
    _require(bool(gradient[0].abs().max() > 0), "the velocity does not depend on x")
    _require(bool((gradient[1:] == 0).all()), "the velocity of row 0 depends on other rows")


def _students_start_equal_and_own_their_parameters(policy: Policy, generator: torch.Generator) -> None:
    assert isinstance(policy, TrainablePolicy)
    request, noise = random_request(policy, generator), _noise(policy, generator)
    before = policy.hash()
    for kind in ("copy", "lora"):
        student = policy.student(kind)
        same = torch.equal(policy.chunk(request, noise=noise), student.chunk(request, noise=noise))
        _require(same, f"an untrained {kind} student differs from its base")
        assert isinstance(student, torch.nn.Module)
        assert isinstance(policy, torch.nn.Module)
        shared = {id(p) for p in student.parameters()} & {id(p) for p in policy.parameters()}
        _require(not shared, f"a {kind} student shares parameters with its base")
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.add_(0.1)
        _require(policy.hash() == before, f"training a {kind} student changed its base")
        same = torch.equal(policy.chunk(request, noise=noise), student.chunk(request, noise=noise))
        _require(not same, f"the parameters of a {kind} student have no effect")


def _loss_has_one_value_per_row(policy: Policy, generator: torch.Generator) -> None:
    assert isinstance(policy, TrainablePolicy)
    request = random_request(policy, generator)
    action = policy.chunk(request, noise=_noise(policy, generator))
    loss = policy.flow_loss(ActionBatch(request.observation, action))
    _require(tuple(loss.shape) == (_ROWS,), f"loss has shape {tuple(loss.shape)}, expected ({_ROWS},)")


def _saved_and_loaded_it_is_the_same(policy: Policy, generator: torch.Generator) -> None:
    request, noise = random_request(policy, generator), _noise(policy, generator)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(save(policy, folder))
    _require(loaded.hash() == policy.hash(), "the loaded policy has another hash")
    here, there = policy.chunk(request, noise=noise).cpu(), loaded.chunk(request, noise=noise)
    _require(torch.equal(here, there) or here.device != there.device, "the loaded policy gives other chunks")
