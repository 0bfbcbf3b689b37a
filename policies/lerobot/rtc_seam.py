"""Our hooks inside LeRobot's own denoising loop, through the one place where LeRobot lets others in.

SmolVLA, pi0 and pi0.5 ask their RTC processor for the velocity of every step. A processor of this module asks
the network and then our hooks, so that guidance works wherever LeRobot samples: in a script of your own, or
beside a robot in its real-time loop.

    policy = robot_rl.load_policy("lerobot/smolvla_base", rate_hz=30)
    guided = GuidedProcessor(policy, refiner.hooks)
    guided.attach()
    guided.watch(preprocessor)
    chunk = policy.model.predict_action_chunk(preprocessor(batch))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.rtc import RTCConfig, RTCProcessor
from torch import Tensor

from policies.hooks import DenoiseState
from policies.lerobot.from_lerobot import robot_observation
from policies.policy import PolicyError
from policies.request import ChunkRequest
from policies.sampler import run_hooks, velocity_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.context import Context
    from policies.hooks import DenoiseHook
    from policies.lerobot.prefix import PrefixPolicy


class GuidedProcessor(RTCProcessor):  # type: ignore[misc] # LeRobot ships no types
    """Runs hooks in LeRobot's Euler loop.

    The action expert runs once a step, as without it, and backwards where a hook asks for gradients; the
    prefix is encoded a second time, as the context of the hooks. The rest of the last chunk, which LeRobot's
    loop hands over, reaches the hooks as `ChunkRequest.previous_chunk`; where it ends nothing is known,
    whatever it is filled up with.

    Args:
        policy: SmolVLA, pi0 or pi0.5, opened by `policies.loading.load`.
        hooks: in the order in which they act.
        config: of LeRobot; only `enabled` matters, and it must be true.
    """

    def __init__(
        self,
        policy: PrefixPolicy,
        hooks: Sequence[DenoiseHook],
        config: RTCConfig | None = None,
    ) -> None:
        super().__init__(config or RTCConfig(enabled=True))
        self._policy, self._hooks = policy, tuple(hooks)
        self._levels = policy.sigmas().tolist()
        self._seen: dict[str, Any] | None = None
        self._context: Context | None = None

    def attach(self) -> None:
        """Put this processor into LeRobot's policy, in the place of its own."""
        model = self._policy.model
        model.config.rtc_config = self.rtc_config
        model.rtc_processor = model.model.rtc_processor = self

    def watch(self, preprocessor: Any) -> None:  # noqa: ANN401 - a pipeline of LeRobot
        """Learn what the robot sees from LeRobot's pre-processor, before it changes anything.

        Args:
            preprocessor: of this policy; every call of it is the observation of the next chunk.
        """

        def before_step(index: int, transition: Mapping[str, Any]) -> None:
            if index == 0:
                self._take(transition)

        preprocessor.register_before_step_hook(before_step)

    def observe(self, observation: Mapping[str, Any]) -> None:
        """Say what the robot sees, for a caller without a pre-processor.

        Args:
            observation: see `policies.request.Observation`.
        """
        self._seen = dict(observation)

    def denoise_step(  # noqa: PLR0917 - LeRobot's signature
        self,
        x_t: Tensor,
        prev_chunk_left_over: Tensor | None,
        inference_delay: int | None,
        time: float,
        original_denoise_step_partial: Callable[[Tensor], Tensor],
        execution_horizon: int | None = None,
    ) -> Tensor:
        """Return the velocity after the hooks; LeRobot's call.

        Args:
            x_t: (B, H, Z) noisy chunk.
            prev_chunk_left_over: rest of the last chunk, (n, A) or (B, n, A), normalised; None at first.
            inference_delay: control steps until the chunk can act.
            time: noise level, from 1 down.
            original_denoise_step_partial: the network.
            execution_horizon: of LeRobot's own weights; ignored, the hook has a schedule of its own.

        Raises:
            PolicyError: nobody said what the robot sees, or it runs under torch.inference_mode.
        """
        del execution_horizon
        if torch.is_inference_mode_enabled():
            raise PolicyError(
                "Guidance runs inside LeRobot's loop, which is under torch.inference_mode here; call "
                "predict_action_chunk under torch.no_grad."
            )
        steps = len(self._levels) - 1
        index = round((1.0 - time) * steps)
        if index == 0:
            self._begin(len(x_t), prev_chunk_left_over, inference_delay)
        try:
            velocity = self._step(index, x_t, original_denoise_step_partial)
        except BaseException:
            self._end(None)
            raise
        if index == steps - 1:
            self._end(self._policy.decode(x_t - velocity / steps, self._known()))
        return velocity

    def _step(self, index: int, x_t: Tensor, network: Callable[[Tensor], Tensor]) -> Tensor:
        grad = any(hook.needs_grad(index) for hook in self._hooks)
        x = x_t.detach().requires_grad_(True) if grad else x_t
        with torch.set_grad_enabled(grad or torch.is_grad_enabled()):
            own = network(x)
            state = DenoiseState(
                index=index,
                steps=len(self._levels) - 1,
                sigma=self._levels[index],
                x=x,
                velocity=own,
                clean=x,
                leaf=x if grad else None,
                velocity_fn=velocity_function(self._policy, self._known()),
                policy=self._policy,
                context=self._known(),
            )
            moved, velocity = run_hooks(self._hooks, state)
        moved, velocity = self._policy.keep_padding(moved, x), self._policy.keep_padding(velocity, own)
        if moved is not x:
            # LeRobot takes the step from its own x: x_t - v / steps = moved - velocity / steps.
            velocity = velocity - (moved - x) * (len(self._levels) - 1)
        guided: Tensor = velocity.detach()
        return guided

    def _begin(self, rows: int, left: Tensor | None, delay: int | None) -> None:
        if self._seen is None:
            raise PolicyError(
                "The hooks do not know what the robot sees; call watch(preprocessor) once, or observe() "
                "before each chunk."
            )
        self._context = self._policy.encode(self._seen)
        previous, consumed = (None, None) if left is None else self._previous(left, rows)
        delays = torch.full((rows,), delay or 0)
        request = ChunkRequest(self._seen, previous_chunk=previous, consumed=consumed, delay=delays)
        for hook in self._hooks:
            hook.begin_chunk(request, self._policy, self._context)

    def _end(self, chunk: Tensor | None) -> None:
        for hook in reversed(self._hooks):
            hook.end_chunk(chunk)
        self._context = None

    def _known(self) -> Context:
        assert self._context is not None, "encoded when the chunk begins"
        return self._context

    def _take(self, transition: Mapping[str, Any]) -> None:
        robot_key = self._policy.keys
        batch = {
            **{robot_key.get(key, key): v for key, v in transition[TransitionKey.OBSERVATION].items()},
            **(transition[TransitionKey.COMPLEMENTARY_DATA] or {}),
        }
        seen = robot_observation(batch, self._policy.spec.features)
        found: dict[str, Any] = {key: value[:, None] for key, value in seen.items()}
        texts = batch.get("task")
        self.observe({**found, "task": [texts] if isinstance(texts, str) else list(texts or [])})

    def _previous(self, left: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The rest of the last chunk, put at the end of one so that nothing follows it; where it begins."""
        spec = self._policy.spec
        left = (left if left.ndim == 3 else left[None]).expand(rows, -1, -1)
        real = left.ne(0).any(-1).any(0).nonzero()
        left = left[:, : int(real[-1]) + 1 if len(real) else 0][:, : spec.horizon]
        count = left.shape[1]
        chunk = torch.zeros(rows, *spec.noise_shape, dtype=left.dtype, device=left.device)
        chunk[:, spec.horizon - count :, : left.shape[2]] = left
        previous = self._policy.decode(chunk, self._known())
        return previous, torch.full((rows,), spec.horizon - count)
