"""Template: a policy of your own. Copy this file into your package; nothing in the library needs an edit.

Check it, save it once, and name the folder wherever a policy is asked for. Its class is found again by its
import path.

    from policies.conformance import check_policy
    check_policy(MyPolicy())
    robot_rl.save_policy(MyPolicy(), "outputs/mine")

    robot-rl evaluate --policy outputs/mine --task peg-insert

This one repeats one action. It is an *opaque* policy: it returns chunks and keeps its inside closed, which is
enough for the control loop, selectors and correctors. To let hooks act inside the denoising, derive from
`policies.policy.ChunkPolicy` and write `encode`, `velocity`, `sigmas`, `decode` and `encode_action` instead
of `chunk` (policies/flow.py shows each). To let methods train students, derive from `TrainablePolicy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from policies.hashing import policy_hash
from policies.policy import Policy, PolicySpec, Supports
from policies.request import batch_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from policies.request import ChunkRequest, Condition


class HoldPolicy(nn.Module, Policy):
    """Repeats one stored action.

    Args:
        action: A values in robot units.
    """

    action: Tensor

    def __init__(self, action: tuple[float, ...] = (0.0, 0.0, 0.0)) -> None:
        super().__init__()
        # 1. Everything that determines the chunks is a parameter or a buffer: it is hashed, saved and moved.
        self.register_buffer("action", torch.tensor(action, dtype=torch.float32))
        # 2. Say what you act on, with units and limits ...
        arm = ActionGroup(
            "arm", len(action), "delta", "position", "base", unit="m", low=(-0.02,), high=(0.02,)
        )
        # 3. ... and what you read, under LeRobot's keys. What is listed must be in every observation.
        features = {"observation.state": Feature((len(action),), "float32", "m")}
        self._spec = PolicySpec(
            name="hold",
            features=features,
            action_spec=ActionSpec((arm,), rate_hz=20.0),
            observation_steps=1,
            horizon=8,
            executed_steps=4,
            first_action=0,
            rate_hz=20.0,
            # 4. Claim only what you can do. `noise=True` promises: the same noise gives the same chunk.
            supports=Supports(),
        )

    @property
    def spec(self) -> PolicySpec:
        """The fixed facts of this policy."""
        return self._spec

    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row, in robot units; see `Policy.chunk`."""
        # 5. Refuse what you do not support; never ignore it silently.
        if noise is not None or condition is not None:
            raise ValueError("policy 'hold' takes neither noise nor a condition")
        # 6. A missing sensor is an error, never zeros.
        missing = [key for key in self._spec.features if key not in request.observation]
        if missing:
            raise ValueError(f"the observation lacks {missing}; policy 'hold' reads them")
        # 7. Rows are independent, and nothing is remembered between calls.
        rows = batch_size(request.observation)
        return self.action.repeat(rows, self._spec.horizon, 1)

    def hash(self) -> str:
        """Return the SHA-256 of parameters and buffers."""
        return policy_hash(self)

    def payload(self) -> dict[str, Any]:
        """Return what `from_payload` needs besides the tensors, as JSON types."""
        # 8. With these two methods policies.checkpoint saves and loads you. Omit both if you need neither.
        return {"action": self.action.tolist()}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Build the policy that `payload` describes."""
        return cls(tuple(payload["action"]))
