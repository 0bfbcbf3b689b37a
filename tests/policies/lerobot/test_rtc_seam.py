"""Our hooks inside LeRobot's own Euler loop, against the same hooks in our sampler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.rtc import RTCConfig, RTCProcessor
from torch import Tensor

from data.features import Feature
from policies.hooks import DenoiseHook, DenoiseState
from policies.lerobot.base import lerobot_image
from policies.lerobot.rtc_seam import GuidedProcessor
from policies.policy import PolicyError
from policies.request import ChunkRequest
from policies.sampler import sample_chunk
from robot_rl.guide.real_time import RealTimeChunking, RealTimeConfig
from tests.policies.lerobot import tiny_checkpoint as tiny
from tests.policies.lerobot.tiny_vla import make_vla, noise, observation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.lerobot.prefix import PrefixPolicy

A = tiny.ACTION_SIZE


@pytest.fixture(scope="module", params=["smolvla", "pi0"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PrefixPolicy:
    return make_vla(tmp_path_factory.mktemp("vla"), request.param)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _restored(policy: PrefixPolicy) -> Iterator[None]:
    yield
    policy.model.config.rtc_config = policy.model.rtc_processor = policy.model.model.rtc_processor = None


class _Pull(DenoiseHook):
    """Pulls the clean estimate to zero by its slope, moves x a little, and counts."""

    def __init__(self, *, grad: bool) -> None:
        self.grad, self.seen, self.ended = grad, [], []

    def needs_grad(self, index: int) -> bool:
        return self.grad and index % 2 == 0

    def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
        self.seen.append((state.index, state.steps, state.sigma))
        if state.leaf is None:
            return state.x + 0.01, 0.9 * state.velocity
        (slope,) = torch.autograd.grad(state.clean.square().sum(), state.leaf)
        return state.x, state.velocity + 0.1 * slope

    def end_chunk(self, chunk: Tensor | None) -> None:
        self.ended.append(chunk)


def lerobots(policy: PrefixPolicy, hooks: list[DenoiseHook], given: Any, start: Tensor, **rtc: Any) -> Tensor:
    """Chunk of LeRobot's own predict_action_chunk with our processor in it, in robot units."""
    guided = GuidedProcessor(policy, hooks)
    guided.attach()
    guided.observe(given)
    batch = {key: value.clone() for key, value in policy.prepare(given).items()}
    normal = policy.model.predict_action_chunk(batch, noise=start, **{"inference_delay": 0, **rtc})
    return policy.decode(normal, policy.encode(given))


def test_without_hooks_it_is_lerobots_chunk_to_the_bit(policy: PrefixPolicy) -> None:
    given, start = observation(), noise(policy)
    assert torch.equal(lerobots(policy, [], given, start), policy.chunk(ChunkRequest(given), start))


def test_hooks_act_as_in_our_sampler(policy: PrefixPolicy) -> None:
    given, start = observation(), noise(policy)
    ours, theirs = _Pull(grad=True), _Pull(grad=True)
    expected = sample_chunk(policy, ChunkRequest(given), start, [ours])
    found = lerobots(policy, [theirs], given, start)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert theirs.seen == ours.seen
    assert not torch.allclose(found, policy.chunk(ChunkRequest(given), start), atol=1e-3)
    assert len(theirs.ended) == 1
    torch.testing.assert_close(theirs.ended[0], found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("gradient", ["identity", "network"])
def test_chunks_are_joined_as_in_our_sampler_whatever_the_rest_is_filled_up_with(
    policy: PrefixPolicy, gradient: Any
) -> None:
    """LeRobot 0.6.1 fills a short rest up with zeros, which pull to the mean of the data (its #4454)."""
    given, start = observation(), noise(policy)
    context = policy.encode(given)
    old = policy.chunk(ChunkRequest(given), noise(policy, seed=5))
    count = torch.full((2,), 4)
    request = ChunkRequest(given, previous_chunk=old, consumed=count, delay=torch.full((2,), 2))
    hooks: list[DenoiseHook] = [RealTimeChunking(RealTimeConfig(gradient))]
    expected = sample_chunk(policy, request, start, hooks)
    rest = policy.encode_action(old, context)[:, 4:, :A]
    for filled in (rest, torch.cat([rest, torch.zeros(2, 3, A)], 1)):
        found = lerobots(policy, hooks, given, start, inference_delay=2, prev_chunk_left_over=filled)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, :2], old[:, 4:6], atol=1e-5, rtol=0)


def test_the_jacobian_is_the_networks_where_lerobots_is_missing() -> None:
    """LeRobot 0.6.1 runs the network before it asks for a gradient, so its correction is the error itself."""
    matrix = torch.tensor([[2.0, 0.5], [0.0, 1.0]])
    start, target = torch.tensor([[[0.3, -0.2]]]), torch.tensor([[[0.1, 0.4]]])
    seen = RTCProcessor(RTCConfig(enabled=True, max_guidance_weight=1.0, debug=True))
    velocity = seen.denoise_step(start, target, 1, 0.5, lambda x: torch.tanh(x) @ matrix, execution_horizon=1)
    error = target - (start - 0.5 * (torch.tanh(start) @ matrix))
    torch.testing.assert_close(velocity, torch.tanh(start) @ matrix - error)  # weight 1 times the error


def test_the_correction_of_a_vla_agrees_with_finite_differences(policy: PrefixPolicy) -> None:
    given = observation(1)
    asked: list[tuple[Tensor, Tensor, Tensor]] = []

    class Spy(DenoiseHook):
        def needs_grad(self, index: int) -> bool:
            return True

        def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
            assert state.leaf is not None
            error = torch.ones_like(state.clean)
            (slope,) = torch.autograd.grad(state.clean, state.leaf, error, retain_graph=True)
            asked.append((state.leaf.detach(), slope, state.velocity.detach()))
            return state.x, state.velocity

    lerobots(policy, [Spy()], given, noise(policy, 1))
    x, slope, _ = asked[1]
    sigma = policy.sigmas()[1].expand(1)
    context = policy.encode(given)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))

    def total(moved: Tensor) -> Tensor:
        return (moved - sigma * policy.velocity(moved, sigma, context)).double().sum()

    step = 1e-2
    difference = (total(x + step * direction) - total(x - step * direction)) / (2 * step)
    assert float((slope * direction).sum()) == pytest.approx(float(difference), rel=2e-2)
    assert not torch.allclose(slope, torch.ones_like(slope), atol=1e-3)  # the identity would be ones


def test_the_preprocessor_tells_what_the_robot_sees(policy: PrefixPolicy) -> None:
    given, start = observation(), noise(policy)
    told: list[Any] = []

    class Ears(DenoiseHook):
        def begin_chunk(self, request: ChunkRequest, policy: Any, context: Any) -> None:
            told.append(request.observation)

    guided = GuidedProcessor(policy, [Ears()])
    guided.attach()
    guided.watch(policy.processors._before)
    policy.processors.observe(
        {
            "observation.state": given["observation.state"][:, 0],
            tiny.CAMERA: lerobot_image(given[tiny.CAMERA][:, 0]),
            "task": list(given["task"]),
        }
    )
    policy.processors._before.before_step_hooks.clear()
    batch = {key: value.clone() for key, value in policy.prepare(given).items()}
    policy.model.predict_action_chunk(batch, noise=start, inference_delay=0)
    assert told[0]["task"] == given["task"]
    for key in ("observation.state", tiny.CAMERA):
        assert torch.equal(told[0][key], given[key])


def test_what_the_robot_sees_comes_under_its_own_keys() -> None:
    class Renamed:
        """A policy that calls a robot's wrist camera its top one."""

        keys = {tiny.CAMERA: "observation.images.wrist"}  # noqa: RUF012 - read only
        spec = SimpleNamespace(features={"observation.images.wrist": Feature((2, 3, 3), "uint8")})

        def sigmas(self) -> Tensor:
            return torch.tensor([1.0, 0.0])

    guided = GuidedProcessor(Renamed(), [])  # type: ignore[arg-type] # as far as it is asked
    transition = {TransitionKey.OBSERVATION: {tiny.CAMERA: torch.ones(1, 3, 2, 3)}}
    guided._take({**transition, TransitionKey.COMPLEMENTARY_DATA: {"task": "lift"}})
    assert guided._seen is not None
    assert guided._seen["task"] == ["lift"]
    assert guided._seen["observation.images.wrist"].shape == (1, 1, 2, 3, 3)


def test_what_cannot_work_says_so(policy: PrefixPolicy) -> None:
    given, start = observation(), noise(policy)
    batch = policy.prepare(given)
    guided = GuidedProcessor(policy, [_Pull(grad=True)])
    guided.attach()
    with pytest.raises(PolicyError, match=r"watch\(preprocessor\)"):
        policy.model.predict_action_chunk(dict(batch), noise=start, inference_delay=0)
    guided.observe(given)
    with torch.inference_mode(), pytest.raises(PolicyError, match="inference_mode"):
        policy.model.predict_action_chunk(dict(batch), noise=start, inference_delay=0)


def test_a_hook_that_fails_leaves_the_others_clean(policy: PrefixPolicy) -> None:
    class Fails(DenoiseHook):
        def step(self, state: DenoiseState) -> tuple[Tensor, Tensor]:
            raise ArithmeticError

    other = _Pull(grad=False)
    with pytest.raises(ArithmeticError):
        lerobots(policy, [other, Fails()], observation(), noise(policy))
    assert other.ended == [None]
