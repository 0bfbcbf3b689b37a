"""Policies that robomimic trained, as opaque policies: BC (plain, Gaussian, mixture) and Diffusion Policy."""

from __future__ import annotations

import hashlib
import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from data.formats.extras import require
from policies.checkpoint import CheckpointError
from policies.hashing import policy_hash
from policies.noise import check_noise
from policies.policy import Policy, PolicySpec
from policies.request import batch_size
from policies.robomimic_spec import RobomimicSettings, action_scale, describe, named_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from policies.request import ChunkRequest, Condition
    from policies.robomimic_checkpoint import RobomimicCheckpoint

KINDS = ("BC", "BC_Gaussian", "BC_GMM", "DiffusionPolicyUNet")
"""Classes of robomimic whose chunk follows from the latest observations alone."""


class RobomimicPolicy(nn.Module, Policy):
    """A policy of robomimic; its denoising, where it has one, counts as closed.

    Diffusion Policy takes the noise it starts from; what a DDPM scheduler draws besides follows from it, row
    by row. A Gaussian or a mixture samples with a seed that follows from the observation. Both make a chunk
    a function of what goes in.

    Args:
        checkpoint: what was read.
        settings: what the caller says.
        device: where to compute.

    Raises:
        CheckpointError: the kind of policy is not supported, or something does not fit.
    """

    offset: Tensor
    scale: Tensor

    def __init__(
        self, checkpoint: RobomimicCheckpoint, settings: RobomimicSettings, device: torch.device
    ) -> None:
        super().__init__()
        self._algo, self._modalities = _build(checkpoint, device)
        self._kind = type(self._algo).__name__
        self.nets = self._algo.nets
        if self._kind == "DiffusionPolicyUNet" and self._algo.ema is not None:
            self.nets = self._algo.ema_nets
        self._rollout = _rollout(self._algo, checkpoint)
        offset, scale = action_scale(checkpoint)
        self.register_buffer("offset", torch.from_numpy(offset).to(device))
        self.register_buffer("scale", torch.from_numpy(scale).to(device))
        self._names = named_keys(checkpoint, settings, self._modalities)
        self._spec = describe(checkpoint, settings, self._names, self._algo)
        self.requires_grad_(requires_grad=False).eval()

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts of this policy."""
        return self._spec

    def hash(self) -> str:
        """Return the SHA-256 of parameters, buffers and normalisation."""
        stats = self._rollout.obs_normalization_stats or {}
        said = [
            (key, name, stats[key][name].tobytes()) for key in sorted(stats) for name in sorted(stats[key])
        ]
        return hashlib.sha256(f"{policy_hash(self)} {said}".encode()).hexdigest()

    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row, in robot units; see `Policy.chunk`."""
        rows = batch_size(request.observation)
        if condition is not None or (noise is not None and not self._spec.supports.noise):
            raise ValueError(
                f"policy {self._spec.name!r} takes no condition, and noise only in Diffusion Policy"
            )
        if missing := [key for key in self._names if key not in request.observation]:
            raise ValueError(f"the observation lacks {missing}; policy {self._spec.name!r} reads them")
        obs_utils = require("robomimic.utils.obs_utils", "robomimic", "A robomimic policy")
        before = obs_utils.OBS_KEYS_TO_MODALITIES
        obs_utils.OBS_KEYS_TO_MODALITIES = self._modalities  # robomimic keeps one table for all policies
        try:
            with torch.no_grad():
                action = self._act(request, noise, rows)
        finally:
            obs_utils.OBS_KEYS_TO_MODALITIES = before
        return (action * self.scale + self.offset).cpu()

    def _act(self, request: ChunkRequest, noise: Tensor | None, rows: int) -> Tensor:
        steps = self._spec.observation_steps
        raw = {theirs: torch.as_tensor(request.observation[ours]) for ours, theirs in self._names.items()}
        seen = {key: value if steps > 1 else value[:, -1] for key, value in raw.items()}
        seeds = [_seed(seen, row) for row in range(rows)]
        prepared = self._rollout._prepare_observation(seen, batched_ob=True)  # noqa: SLF001 - as its own call does
        if self._kind == "DiffusionPolicyUNet":
            if noise is None:
                noise = torch.randn(rows, *self._spec.noise_shape)
            check_noise(self._spec, noise, rows)
            return self._denoise(prepared, noise)
        if self._kind == "BC":
            only: Tensor = self._algo.get_action(prepared)[:, None]
            return only
        sampled = []
        for row, seed in enumerate(seeds):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                sampled.append(
                    self._algo.get_action({key: value[row : row + 1] for key, value in prepared.items()})
                )
        return torch.stack(sampled)

    def _denoise(self, observation: dict[str, Tensor], noise: Tensor) -> Tensor:
        """Run the checkpoint's own scheduler from the given noise."""
        tensor_utils = require("robomimic.utils.tensor_utils", "robomimic", "A robomimic policy")
        encoder, network = (self.nets["policy"][name] for name in ("obs_encoder", "noise_pred_net"))
        inputs = {"obs": observation, "goal": None}
        if self._spec.observation_steps == 1:
            inputs["obs"] = {key: value[:, None] for key, value in observation.items()}
        features = tensor_utils.time_distributed(inputs, encoder, inputs_as_kwargs=True).flatten(start_dim=1)
        generators = [
            torch.Generator().manual_seed(_seed({"noise": noise.cpu()}, row)) for row in range(len(noise))
        ]
        config, scheduler = self._algo.algo_config, self._algo.noise_scheduler
        chosen = config.ddpm if config.ddpm.enabled else config.ddim
        scheduler.set_timesteps(chosen.num_inference_timesteps)
        x = noise.to(features.device)
        for step in scheduler.timesteps:
            said = network(sample=x, timestep=step, global_cond=features)
            x = scheduler.step(said, step, x, generator=generators).prev_sample
        return x


def _build(checkpoint: RobomimicCheckpoint, device: torch.device) -> tuple[Any, Mapping[str, str]]:
    """Robomimic's algorithm with its weights, and its table of key -> modality."""
    obs_utils = require("robomimic.utils.obs_utils", "robomimic", "A robomimic policy")
    algo = require("robomimic.algo", "robomimic", "A robomimic policy")
    before = obs_utils.OBS_KEYS_TO_MODALITIES
    try:
        with redirect_stdout(io.StringIO()):
            obs_utils.initialize_obs_utils_with_config(checkpoint.config)
            made = algo.algo_factory(
                checkpoint.algo_name,
                checkpoint.config,
                obs_key_shapes=checkpoint.shapes,
                ac_dim=checkpoint.action_size,
                device=device,
            )
            made.deserialize(checkpoint.model)
            made.set_eval()
        modalities = obs_utils.OBS_KEYS_TO_MODALITIES
    except (RuntimeError, KeyError, ValueError, TypeError, AssertionError) as error:
        raise CheckpointError(f"{checkpoint.path} does not fit its own configuration: {error}") from error
    finally:
        obs_utils.OBS_KEYS_TO_MODALITIES = before
    kind = type(made).__name__
    if kind not in KINDS or made.goal_shapes:
        what = "follows goals" if made.goal_shapes else f"is a {kind}, which keeps a state between steps"
        raise CheckpointError(f"the policy in {checkpoint.path} {what}; supported are {', '.join(KINDS)}")
    return made, modalities


def _rollout(algo: Any, checkpoint: RobomimicCheckpoint) -> Any:  # noqa: ANN401 - of robomimic
    wrapper = require("robomimic.algo", "robomimic", "A robomimic policy").RolloutPolicy
    stats = checkpoint.observation_stats
    return wrapper(
        algo, obs_normalization_stats=None if stats is None else {k: dict(v) for k, v in stats.items()}
    )


def _seed(values: Mapping[str, Any], row: int) -> int:
    """A seed that follows from one row of named tensors."""
    digest = hashlib.sha256()
    for key in sorted(values):
        digest.update(values[key][row].detach().cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest()[:7], "little")
