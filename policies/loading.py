"""Any policy by path, name or address: what `robot_rl.load_policy` and every ``--policy`` use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.checkpoint import CheckpointError, read_header, refuse_misfit
from policies.loaders import loaders

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from data.features import Feature
    from hardware.action_spec import ActionSpec
    from policies.policy import Policy

_ADDRESS = re.compile(r"^(\w+):/(?=[^/])")


def load(
    source: Path | str,
    device: torch.device | str = "cpu",
    *,
    features: Mapping[str, Feature] | None = None,
    action_spec: ActionSpec | None = None,
    **options: Any,  # noqa: ANN401 - each kind of source has its own
) -> Policy:
    """Read a policy, frozen and in evaluation mode.

    Args:
        source: a folder of `robot-rl train`, a LeRobot checkpoint (a folder, or a repository id of the hub),
            or
            whatever else a loader of `policies.loaders` recognises.
        device: where to put it.
        features: what the environment or data set offers; refused if the policy needs something else.
        action_spec: of the environment or data set; refused if the policy acts otherwise.
        **options: of the kind of source, such as `policies.lerobot.settings.LeRobotSettings`; and
            ``default_features`` and ``default_action_spec``, which hold where a policy itself says nothing.

    Raises:
        CheckpointError: if there is no policy, it is a pickle, damaged, of an unknown kind, or made for other
            features or actions; each difference is named.
        TypeError: if the kind of source has no such option.
        ValueError: if the device does not work here.
    """
    text = source_text(source)
    known = loaders()
    for loader in known:
        if loader.matches(text):
            policy = loader.load(text, device, loader.accepted(options))
            refuse_misfit(text, policy, features, action_spec)
            return policy
    if Path(text).exists():
        read_header(Path(text))  # says what is wrong with a folder or file that is nearly a policy
    looked = "".join(f"\n  {loader.looked_for}" for loader in known)
    raise CheckpointError(f"there is no policy at {text}. Looked for:{looked}")


def source_text(source: Path | str) -> str:
    """Return a source as the user wrote it; a `Path` has lost one of the slashes of an address.

    Args:
        source: a path, a name, or an address such as ``ws://host:8000``.
    """
    return _ADDRESS.sub(r"\1://", str(source)) if isinstance(source, Path) else source
