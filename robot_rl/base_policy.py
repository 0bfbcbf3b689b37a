"""The policy at ``--policy``, with the task's word on what the policy does not say itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from policies.policy import Policy
    from sim.task import Task


def policy_for(source: Path | str, task: Task, device: str = "cpu") -> Policy:
    """Return the policy at ``--policy``, frozen.

    Args:
        source: whatever `policies.loading.load` takes.
        task: that it will run in; units, names and rate are taken from it, with a warning, where a policy
            does not say them. The control loop refuses a policy that does not fit it.
        device: where to put the policy.

    Raises:
        CheckpointError: see `policies.loading.load`.
    """
    from policies.loading import load  # keeps torch out of what imports this

    return load(source, device, default_features=dict(task.features), default_action_spec=task.action_spec)
