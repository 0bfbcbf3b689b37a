"""Whether the base still works on random noise of the kind that may be chosen, before anything is learned.

Where it does not, there is no success to learn from: noise repeated over the horizon took fine-tuned pi0
policies to no success at all (github.com/nakamotoo/dsrl_pi0, issues 8 and 15).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import torch

from robot_rl.noise.policy import NoisePolicy
from robot_rl.statistics import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor

    from policies.request import ChunkRequest
    from robot_rl.noise.network import NoiseNetwork

logger = logging.getLogger(__name__)

type Preflight = Literal["refuse", "warn", "off"]


class RandomChoice(NoisePolicy):
    """Chooses at random, evenly within the bound along each chosen direction; the rest stays as drawn.

    Args:
        network: Whose space it chooses from; its weights play no role.
    """

    def __init__(self, network: NoiseNetwork) -> None:
        self._network = network

    @torch.no_grad()
    def propose(
        self, request: ChunkRequest, noise: Float[Tensor, "B H Z"], *, deterministic: bool
    ) -> Float[Tensor, "B H Z"]:
        """Choose by what was drawn, so that rows stay independent; see `NoisePolicy.propose`."""
        del request, deterministic
        network = self._network
        drawn = network.along(noise)
        even = network.config.space.bound * torch.erf(drawn / 2**0.5)
        return network.place(even, noise, drawn)


def judge_preflight(base: Sequence[bool], random: Sequence[bool], *, mode: Preflight) -> None:
    """Compare success on drawn noise with success on random choices.

    Args:
        base: Outcomes on drawn noise.
        random: Outcomes on random choices.
        mode: "refuse" raises where they are clearly less than half as good, "warn" only says so, "off" does
            nothing.

    Raises:
        ValueError: The choices are clearly too bad.
    """
    if mode == "off" or not base or not random:
        return
    before, after = sum(base) / len(base), sum(random) / len(random)
    most = wilson_interval(sum(random), len(random))[1]
    said = (
        f"on noise chosen at random the base succeeds in {after:.0%} of {len(random)} episodes, on its own "
        f"in {before:.0%} of {len(base)}"
    )
    if not before:
        logger.warning("the base succeeded in none of %d episodes: choosing among what it does", len(base))
    elif most < before / 2 and mode == "refuse":
        raise ValueError(
            f"{said}: too few to learn from. Choose --space.parameters full or --space.form edit, a smaller "
            "--space.bound, or go on with --preflight warn."
        )
    elif most < before:
        logger.warning("%s: learning starts from less than the base", said)
