"""GR00T N1.7 (NVIDIA 2025) as LeRobot trains it: a Qwen3-VL encodes, a diffusion transformer denoises.

Its time runs from 0 (noise) to 1, in a thousand buckets, and its velocity is a - eps: here both are turned
round. LeRobot lets tokens attend to the padding of shorter texts, so that a row's chunk depends on the
longest text of its batch; here only rows with texts of equal length are encoded together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from policies.checkpoint import CheckpointError
from policies.lerobot.describe import Layout
from policies.lerobot.euler import EulerPolicy, outside_inference
from policies.lerobot.files import CONFIG, download, read_json
from policies.lerobot.groot_batch import joined, same_length
from policies.lerobot.groot_processors import GrootProcessors
from policies.parity import drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float

    from policies.context import Context, TensorContext
    from policies.request import Condition, Observation

_ROUNDING = 1e-3
"""Of a bucket of time: sigma is float32, and 0.25 of 1000 buckets must not become 249."""


class GrootPolicy(EulerPolicy):
    """A GR00T N1.7, frozen and opened."""

    @classmethod
    def adjust(cls, config: Any) -> None:  # noqa: ANN401 - a configuration of LeRobot
        """Find the base model, whose sizes the checkpoint does not hold."""
        if not Path(config.base_model_path).is_dir():
            config.base_model_path = str(download(config.base_model_path, None))
        if not _base(config).get("use_alternate_vl_dit", True):
            raise CheckpointError(
                "its base has use_alternate_vl_dit off: LeRobot then attends to the padding of shorter texts "
                "at every step, and the rows of a batch are not independent"
            )

    @classmethod
    def layout(cls, config: Any) -> Layout:  # noqa: ANN401 - a configuration of LeRobot
        """Return how the policy cuts time; the chunk is as long as the base makes it."""
        ours = super().layout(config)
        base = _base(config)
        horizon, width = int(base["action_horizon"]), int(base["max_action_dim"])
        return Layout(1, horizon, min(ours.executed_steps, ours.horizon, horizon), 0, width)

    @classmethod
    def make_processors(
        cls,
        folder: Path,
        config: Any,  # noqa: ANN401 - a configuration of LeRobot
        features: Mapping[str, Any],
        local: Mapping[str, str],
    ) -> GrootProcessors:
        """Return the checkpoint's processors; see `Processors` for the arguments."""
        return GrootProcessors(folder, config, features, local)

    @property
    def steps(self) -> int:
        """Denoising steps that the checkpoint takes."""
        return int(self._head.num_inference_timesteps)

    @property
    def valid_positions(self) -> int:
        """Positions of the chunk that the robot's data taught."""
        positions = self.processors.scale.positions if isinstance(self.processors, GrootProcessors) else None
        return min(positions or self._spec.horizon, self._spec.horizon)

    def encode(self, observation: Observation, condition: Condition = None) -> TensorContext:
        """Run images, text and state through the encoders; see `ChunkPolicy.encode`."""
        self.check_condition(condition)
        with torch.no_grad(), self._precision():
            inputs = self.model._filter_groot_inputs(self.prepare(observation), include_action=False)  # noqa: SLF001 - LeRobot's only name for it
            parts = [(rows, self._encoded(part)) for rows, part in same_length(inputs)]
        return self.with_origin(outside_inference(joined(parts)), observation)

    def velocity(
        self,
        x: Float[Tensor, "B H Z"],
        sigma: Float[Tensor, " B"] | Float[Tensor, "B H"],
        context: Context,
    ) -> Float[Tensor, "B H Z"]:
        """Return v = eps - a at x; see `ChunkPolicy.velocity`. Sigma acts in steps of a thousandth.

        Raises:
            ValueError: if sigma is not one level per row, or the rows of x are not those of the context.
        """
        rows = self.check_rows(x, sigma, context)
        head, body = self._head, rows["embodiment"]
        time = bucket(sigma, int(head.num_timestep_buckets))
        with self._precision():
            actions = head.action_encoder(x, time, body)
            if head.config.add_pos_embed:
                positions = torch.arange(actions.shape[1], device=x.device)
                actions = actions + head.position_embedding(positions).unsqueeze(0)
            output = head.model(
                hidden_states=torch.cat((rows["state"], actions), dim=1),
                encoder_hidden_states=rows["features"],
                timestep=time,
                image_mask=rows["image"],
                backbone_attention_mask=rows["attended"],
            )
            towards_action: Tensor = head.action_decoder(output, body)[:, -x.shape[1] :]
        return -towards_action.to(x.dtype)

    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return LeRobot's own chunk; see `LeRobotPolicy.original`. It draws its noise with `torch.randn`."""
        del step_noise
        if noise is None:
            raise ValueError("give the noise; GR00T would draw its own")
        with drawing(noise):
            chunk: Tensor = self.model.predict_action_chunk(self.prepare(observation))
        return chunk

    @property
    def _head(self) -> Any:  # noqa: ANN401 - a network of LeRobot
        return self.model._groot_model.action_head  # noqa: SLF001 - LeRobot's only name for it

    def _precision(self) -> torch.autocast:
        """LeRobot computes in bfloat16 where the configuration says so."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.model.config.use_bf16))

    def _encoded(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        network = self.model._groot_model  # noqa: SLF001 - LeRobot's only name for it
        seen, acted = network.prepare_input(inputs)
        output = network.backbone(seen)
        encoded = network.action_head._encode_features(output, acted)  # noqa: SLF001 - LeRobot's only name for it
        return {
            "features": encoded.backbone_features,
            "state": encoded.state_features,
            "image": output.image_mask,
            "attended": output.backbone_attention_mask,
            "embodiment": acted.embodiment_id,
        }


def bucket(sigma: Tensor, buckets: int) -> Tensor:
    """Return GR00T's number of a noise level's time, (B,) int64.

    Args:
        sigma: (B,) 1 (noise) to 0 (clean).
        buckets: that time from 0 to 1 is cut into.
    """
    return torch.floor((1.0 - sigma.to(torch.float32)) * buckets + _ROUNDING).long().clamp(0, buckets - 1)


def _base(config: Any) -> dict[str, Any]:  # noqa: ANN401 - a configuration of LeRobot
    return read_json(Path(config.base_model_path) / CONFIG)
