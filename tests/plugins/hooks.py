"""A hook that needs a graph, saved and found again by its name."""

import torch

from policies.hooks import DenoiseHook


class Halve(DenoiseHook):
    """Goes down the slope of the chunk's square."""

    def needs_grad(self, index):
        return True

    def step(self, state):
        (slope,) = torch.autograd.grad(state.clean.square().sum(), state.leaf)
        return state.x, state.velocity + 0.5 * slope

    def payload(self):
        return {}

    def tensors(self):
        return {}

    @classmethod
    def from_payload(cls, payload, tensors):
        return cls()
