"""What all policies from LeRobot share: their processors, their spec, their hash, and LeRobot's own chunk.

A family is a subclass in a module of its own, named in `policies.lerobot.families`. It says how its model is
built (`build_model`), how it cuts time (`layout`), what it offers (`supports`) and how LeRobot itself would
sample (`original`); a family that can be opened is a `LeRobotChunkPolicy` and adds `encode`, `velocity` and
`sigmas`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from policies.checkpoint import CheckpointError
from policies.context import TensorContext
from policies.hashing import tensors_hash
from policies.lerobot.describe import Layout
from policies.lerobot.payload import write_payload
from policies.lerobot.processors import Processors, lerobot_image
from policies.lerobot.quiet import quiet_transformers
from policies.policy import ChunkPolicy, Policy, PolicySpec, Supports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.context import Context
    from policies.request import Observation

STATE = "observation.state"
ORIGIN = "origin"
"""Name under which a `TensorContext` holds the newest state, for relative actions."""


class LeRobotPolicy(nn.Module, Policy):
    """A frozen LeRobot policy that gives chunks.

    Args:
        model: LeRobot's policy.
        processors: its pre- and post-processing.
        spec: its fixed facts.
        keys: key of the checkpoint -> robot key, of every observation.
        payload: see `policies.lerobot.payload.read_payload`.

    Attributes:
        keeps_time: whether LeRobot's network reads observations with an axis of time, (B, T, ...).
    """

    keeps_time: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        processors: Processors,
        spec: PolicySpec,
        keys: Mapping[str, str],
        payload: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._payload = dict(payload)
        self.model: Any = model
        self.processors = processors
        self._spec = spec
        self._keys = dict(keys)

    @classmethod
    def adjust(cls, config: Any) -> None:  # noqa: ANN401 - a configuration of LeRobot
        """Change a configuration before the model is built, such as to keep it from downloading weights."""
        if getattr(config, "pretrained_backbone_weights", None) is not None:
            config.pretrained_backbone_weights = None  # the checkpoint's own follow

    @classmethod
    def inputs(cls, config: Any) -> dict[str, Any]:  # noqa: ANN401 - a configuration of LeRobot
        """Return key -> PolicyFeature of what the robot must supply."""
        return {key: f for key, f in (config.input_features or {}).items() if "empty_camera" not in key}

    @classmethod
    def layout(cls, config: Any) -> Layout:  # noqa: ANN401 - a configuration of LeRobot
        """Return how the policy cuts time, here as most of LeRobot's policies say it."""
        positions = list(config.action_delta_indices)
        return Layout(config.n_obs_steps, len(positions), config.n_action_steps, -positions[0])

    @classmethod
    def supports(cls, config: Any) -> Supports:  # noqa: ANN401 - a configuration of LeRobot
        """Return what the policy offers beyond plain chunks."""
        del config
        return Supports()

    @classmethod
    def build_model(cls, model_class: type[nn.Module], config: Any, folder: Path) -> nn.Module:  # noqa: ANN401
        """Build LeRobot's policy on the CPU; its weights are still to be loaded.

        Args:
            model_class: of LeRobot.
            config: LeRobot's configuration, adjusted.
            folder: of the checkpoint, for messages.

        Raises:
            CheckpointError: if the model cannot be built from its configuration.
        """
        try:
            with quiet_transformers():
                return model_class(config)
        except (OSError, ValueError, ImportError, AssertionError) as error:
            raise CheckpointError(
                f"the model of {folder} cannot be built ({type(error).__name__}: {error}). Where it names "
                "parts on "
                'the hub, give local={NAME: FOLDER}, or name the folder under "local" in robot_rl.json'
            ) from error

    @classmethod
    def rename_weights(cls, model: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:  # noqa: ANN401 - of LeRobot
        """Return a checkpoint's tensors under the names that the model has for them.

        Args:
            model: of LeRobot.
            tensors: as they are stored.
        """
        del model
        return tensors

    @classmethod
    def make_processors(
        cls,
        folder: Path,
        config: Any,  # noqa: ANN401 - a configuration of LeRobot
        features: Mapping[str, Any],
        local: Mapping[str, str],
    ) -> Processors:
        """Return the checkpoint's processors; see `Processors` for the arguments."""
        processors = Processors(folder, config, features, local)
        known = {"UnnormalizerProcessorStep", "AbsoluteActionsProcessorStep"}
        unknown = [name for step in processors.output_steps if (name := type(step).__name__) not in known]
        if unknown:
            raise CheckpointError(
                f"the post-processor of {folder} has the steps {', '.join(unknown)}, which cannot be undone "
                "here"
            )
        return processors

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts of this policy."""
        return self._spec

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        dtype: torch.dtype = next(self.model.parameters()).dtype
        return dtype

    def prepare(self, observation: Observation) -> dict[str, Tensor]:
        """Return an observation as LeRobot's network reads it, pre-processed and on its device.

        Args:
            observation: of the robot; see `policies.request.Observation`.

        Raises:
            ValueError: if a key is missing or has another shape.
        """
        values: dict[str, Tensor] = {}
        for key, feature in self._spec.features.items():
            value = observation.get(key)
            shape = (self._spec.observation_steps, *feature.shape)
            if not isinstance(value, Tensor) or tuple(value.shape[1:]) not in (shape, self._small(shape)):
                found = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else "is missing"
                raise ValueError(
                    f"{key!r} {found}; policy {self._spec.name!r} reads (B, {', '.join(map(str, shape))})"
                )
            value = value.to(self.device)
            value = lerobot_image(value) if feature.is_image else value.to(torch.float32)
            values[key] = value if self.keeps_time else value[:, -1]
        batch: dict[str, Any] = {theirs: values[ours] for theirs, ours in self._keys.items()}
        if self._spec.reads_task:
            batch["task"] = _texts(observation, self._spec.name)
        return {key: self._placed(value) for key, value in self.processors.observe(batch).items()}

    @property
    def keys(self) -> dict[str, str]:
        """Key of the checkpoint -> robot key, of every observation."""
        return dict(self._keys)

    @property
    def network_image_size(self) -> tuple[int, int] | None:
        """(height, width) to which the network scales images: such are taken too. None: unknown."""
        return None

    def _small(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        size = self.network_image_size
        return shape if size is None or len(shape) != 4 else (shape[0], *size, shape[3])

    def original(
        self, observation: Observation, noise: Tensor | None = None, step_noise: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return what LeRobot's own predict_action_chunk gives, (B, n, A) in normalised space.

        It covers the chunk's positions from `first_action` on. For parity checks only.

        Args:
            observation: see `prepare`.
            noise: initial noise; given to LeRobot in whatever way it takes it.
            step_noise: noise of each step, for a process that draws it.
        """
        raise NotImplementedError

    def payload(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON types; `from_payload` reads it."""
        return self._payload

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Build the policy that `payload` describes; its weights are still to be loaded.

        Raises:
            ValueError: if the payload is incomplete or describes another kind of policy.
        """
        from policies.lerobot.opening import assemble

        with tempfile.TemporaryDirectory(prefix="robot-rl-policy-") as place:
            write_payload(payload, Path(place))
            policy = assemble(Path(place))
        if not isinstance(policy, cls):
            raise ValueError(f"the payload makes a {type(policy).__name__}, not a {cls.__name__}")  # noqa: TRY004
        return policy

    def hash(self) -> str:
        """Return the SHA-256 of parameters, buffers and the statistics of the processors."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        return tensors_hash(tensors | {f"processors.{k}": v for k, v in self.processors.tensors().items()})

    def _placed(self, value: Tensor) -> Tensor:
        return value.to(self.device) if isinstance(value, Tensor) else value


class LeRobotChunkPolicy(LeRobotPolicy, ChunkPolicy):
    """A LeRobot policy with open denoising; x is its normalised action, padded to the noise's width."""

    def decode(self, x: Tensor, context: Context) -> Tensor:
        """Return actions in robot units; differentiable. Padded dimensions are left out."""
        action = x[..., : self._spec.action_size]
        action = action if action.dtype == torch.float64 else action.to(torch.float32)
        return self.processors.denormalize(action, self._origin(context))

    def encode_action(self, action: Tensor, context: Context) -> Tensor:
        """Return robot-unit actions in the space of x, padded dimensions zero."""
        action = action.to(self.device)
        normal = self.processors.normalize(
            action if action.dtype == torch.float64 else action.to(torch.float32), self._origin(context)
        )
        return nn.functional.pad(normal, (0, self._spec.noise_shape[1] - normal.shape[-1]))

    def with_origin(self, tensors: Mapping[str, Tensor], observation: Observation) -> TensorContext:
        """Return a context of these tensors, and of the newest state where actions are relative to it."""
        if not self.processors.is_relative:
            return TensorContext(tensors)
        before = {new: old for old, new in self.processors.renamed.items()}.get(STATE, STATE)
        state = observation[self._keys.get(before, before)]
        assert isinstance(state, Tensor)
        return TensorContext({**tensors, ORIGIN: state[:, -1].to(self.device, torch.float32)})

    def _origin(self, context: Context) -> Tensor | None:
        if not self.processors.is_relative:
            return None
        tensors: Mapping[str, Tensor] = getattr(context, "tensors", {})
        return tensors.get(ORIGIN)


def _texts(observation: Observation, name: str) -> list[str]:
    texts = observation.get("task")
    if texts is None or isinstance(texts, Tensor):
        raise ValueError(f"policy {name!r} reads a text; give one per row under 'task'")
    return list(texts)
