"""A policy trained from the base, as a part of a refiner: it proposes in the base's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from torch import nn

from policies.checkpoint import Savable
from policies.registry import reference_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from policies.policy import Policy


class Student:
    """Holds a whole policy, so that one refiner folder and the base's folder are all an evaluation needs.

    Args:
        policy: frozen here; it must be savable, as `policies.checkpoint.Savable` says.

    Raises:
        TypeError: if it is not.
    """

    def __init__(self, policy: Policy) -> None:
        if not (isinstance(policy, nn.Module) and isinstance(policy, Savable)):
            raise TypeError(
                f"policy {policy.spec.name!r} cannot be saved, so it cannot be a refiner's student; "
                "evaluate it by itself with --policy"
            )
        self._module: nn.Module = policy.requires_grad_(False).eval()
        self.policy: Policy = policy

    def in_place_of(self, base: Policy) -> Policy:
        """Return the student's policy.

        Args:
            base: whose place it takes.

        Raises:
            ValueError: if the two read other noise or execute chunks in another way, so that episodes of one
                seed would not be pairs.
        """
        old, new = base.spec, self.policy.spec
        names = ("horizon", "executed_steps", "first_action", "observation_steps", "noise_shape")
        if wrong := [name for name in names if getattr(old, name) != getattr(new, name)]:
            raise ValueError(
                f"the student has another {', '.join(wrong)} than the base; evaluate it with --policy"
            )
        return self.policy

    def payload(self) -> dict[str, Any]:
        """Class and configuration of the policy."""
        assert isinstance(self.policy, Savable)
        return {"class": reference_of(type(self.policy)), "policy": self.policy.payload()}

    def tensors(self) -> dict[str, Tensor]:
        """Its parameters and buffers."""
        return dict(self._module.state_dict())

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the student; see `robot_rl.parts.SavedPart`.

        Raises:
            ValueError: if class, configuration and tensors do not belong together.
        """
        policy_class: Any = resolve(payload["class"])
        policy = policy_class.from_payload(payload["policy"])
        try:
            policy.load_state_dict(dict(tensors))
        except RuntimeError as error:
            raise ValueError(f"the student's tensors do not fit its configuration: {error}") from error
        policy.to(next(iter(tensors.values())).device)
        return cls(policy)
