"""A base whose action is a fifth of its noise, so that what DSRL should learn is plain."""

import torch

from policies.policy import Policy, PolicySpec, Supports
from tests.robot_rl.scripted import FEATURES, SPEC

STATE = "observation.state"


class Pusher(Policy):
    """Noise has a third, padded dimension that does nothing."""

    def __init__(self, width=3):
        self._spec = PolicySpec(
            "pusher", {STATE: FEATURES[STATE]}, SPEC, 1, 4, 3, 0, 10.0, Supports(noise=True), width
        )

    @property
    def spec(self):
        return self._spec

    def chunk(self, request, noise=None, condition=None):
        return 0.2 * noise[..., :2]

    def hash(self):
        return "pusher"


def request(rows=2):
    from policies.request import ChunkRequest

    seen = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 1, 2)
    return ChunkRequest({STATE: seen})
