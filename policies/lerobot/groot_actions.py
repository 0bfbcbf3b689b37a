"""How GR00T N1.7 scales actions: limits per dimension (and position), some relative to the state.

LeRobot does the same in NumPy, or remembers the last state it saw; here it is differentiable and the state is
handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from data.formats.extras import require
from policies.checkpoint import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ActionScale:
    """Between [-1, 1] and robot units, for the first `positions` positions of a chunk.

    Attributes:
        low: (positions or 1, A) what -1 stands for.
        high: (positions or 1, A) what 1 stands for.
        source: (A,) the state dimension that is added; -1 for none.
        positions: those that mean something; None: all. Later ones repeat the last of them.
        clip: whether values beyond -1 and 1 are cut off, as in most checkpoints; gradients end there.
    """

    low: Tensor
    high: Tensor
    source: Tensor
    positions: int | None = None
    clip: bool = True

    @property
    def is_relative(self) -> bool:
        """Whether any dimension is relative to the state."""
        return bool((self.source >= 0).any())

    def decode(self, action: Tensor, origin: Tensor | None) -> Tensor:
        """Return (B, H, A) normalised actions in robot units; differentiable.

        Args:
            action: (B, H, A).
            origin: (B, S) state; needed where actions are relative.
        """
        low, high = self._limits(action)
        used = action[:, : self.positions]
        used = used.clamp(-1.0, 1.0) if self.clip else used
        decoded = (used + 1.0) * 0.5 * (high - low) + low + self._offset(used, origin)
        missing = action.shape[1] - decoded.shape[1]
        return torch.cat([decoded, decoded[:, -1:].expand(-1, missing, -1)], dim=1) if missing else decoded

    def encode(self, action: Tensor, origin: Tensor | None) -> Tensor:
        """Return robot-unit actions (B, H, A) in normalised space, positions that mean nothing zero."""
        low, high = self._limits(action)
        used = action[:, : self.positions]
        width = high - low
        moved = 2.0 * (used - self._offset(used, origin) - low) / torch.where(width == 0, 1.0, width) - 1.0
        moved = torch.where(width == 0, torch.zeros_like(moved), moved)
        return torch.nn.functional.pad(moved, (0, 0, 0, action.shape[1] - moved.shape[1]))

    def _limits(self, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.low.to(action), self.high.to(action)

    def _offset(self, action: Tensor, origin: Tensor | None) -> Tensor:
        if not self.is_relative:
            return action.new_zeros(1)
        if origin is None:
            raise ValueError("these actions are relative to the state, which the context does not hold")
        source = self.source.to(action.device)
        state = origin.to(action)[:, source.clamp_min(0)]
        return torch.where(source >= 0, state, torch.zeros_like(state))[:, None]


def scale_of(step: Any, pack: Any, width: int) -> ActionScale:  # noqa: ANN401 - steps of LeRobot
    """Return what a checkpoint's decoding step does.

    Args:
        step: that turns the model's output into actions.
        pack: the step that packs states, whose groups a relative action refers to.
        width: A.

    Raises:
        CheckpointError: if actions are not normalised, or decoded in a way that cannot be undone here.
    """
    module = require("lerobot.policies.groot.processor_groot", "vla", "GR00T")
    if isinstance(step, module.GrootActionUnpackUnnormalizeStep):
        if step.libero_gripper_action:
            raise CheckpointError("its gripper is turned into a sign (action_decode_transform 'libero')")
        return _flat_scale(step, width)
    if isinstance(step, module.GrootN17ActionDecodeStep):
        if step.action_decode_transform is not None:
            raise CheckpointError(f"its actions are changed by {step.action_decode_transform!r} at the end")
        return _grouped_scale(step, pack, module, width)
    raise CheckpointError(f"its post-processor has {type(step).__name__}, which cannot be undone here")


def _flat_scale(step: Any, width: int) -> ActionScale:  # noqa: ANN401 - a step of LeRobot
    values = (step.stats or {}).get("action", {})
    if not step.normalize_min_max or not {"min", "max"} <= values.keys():
        raise CheckpointError("it has no min and max of 'action', so that actions would not be normalised")
    low, high = (torch.as_tensor(values[name], dtype=torch.float32).flatten() for name in ("min", "max"))
    if low.shape != (width,) or high.shape != (width,):
        raise CheckpointError(f"'action' has {width} dimensions, its min {len(low)} and its max {len(high)}")
    none = torch.full((width,), -1)
    return ActionScale(low[None], high[None], none, clip=bool(step.clip_normalized_action))


def _grouped_scale(step: Any, pack: Any, module: Any, width: int) -> ActionScale:  # noqa: ANN401 - of LeRobot
    groups = (step.modality_config or {}).get("action", {})
    names, configs = groups.get("modality_keys", []), groups.get("action_configs", [])
    lows, highs, sources = [], [], []
    for index, name in enumerate(names):
        config = configs[index] if index < len(configs) else {}
        low, high = (
            torch.as_tensor(limit, dtype=torch.float32)
            for limit in module._n1_7_decode_stats_for_action(  # noqa: SLF001 - LeRobot's only name for it
                step.raw_stats,
                name,
                config,
                use_relative_action=step.use_relative_action,
                use_percentiles=step.use_percentiles,
            )
        )
        lows.append(low if low.ndim == 2 else low[None])
        highs.append(high if high.ndim == 2 else high[None])
        relative = step.use_relative_action and module.config_value(config.get("rep")) == "relative"
        sources.append(
            _state_dimensions(pack, name, config, module, lows[-1].shape[1])
            if relative
            else torch.full((lows[-1].shape[1],), -1)
        )
    if sum(len(part) for part in sources) < width:
        raise CheckpointError(f"'action' has {width} dimensions, its groups {names} fewer")
    valid = [len(groups.get("delta_indices") or []), *(len(low) for low in lows if len(low) > 1)]
    positions = min((count for count in valid if count), default=None)
    low, high = (_joined(parts, positions)[:, :width] for parts in (lows, highs))
    return ActionScale(low, high, torch.cat(sources)[:width], positions)


def _joined(parts: list[Tensor], positions: int | None) -> Tensor:
    """Limits of all groups side by side, one row per position where any group has that."""
    rows = positions if positions is not None and any(len(part) > 1 for part in parts) else 1
    return torch.cat([part[:rows] if len(part) > 1 else part.expand(rows, -1) for part in parts], dim=1)


def _state_dimensions(
    pack: Any,  # noqa: ANN401 - a step of LeRobot
    name: str,
    config: Mapping[str, Any],
    module: Any,  # noqa: ANN401 - of LeRobot
    width: int,
) -> Tensor:
    """The dimensions of the state that an action group is relative to."""
    if module.config_value(config.get("type")) != "non_eef":
        raise CheckpointError(f"its action {name!r} is a pose relative to the hand, which is not undone here")
    first, wanted = 0, config.get("state_key") or name
    for key in pack.modality_config.get("state", {}).get("modality_keys", []):
        size = module.stat_dim_from_entry(pack.raw_stats.get("state", {}).get(key, {}))
        if key == wanted and size == width:
            return torch.arange(first, first + size)
        first += size
    raise CheckpointError(f"its action {name!r} is relative to the state {wanted!r}, which has no such width")
