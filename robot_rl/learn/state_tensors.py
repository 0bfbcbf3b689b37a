"""States of optimisers and random generators as named tensors, which safetensors can hold.

The names and shapes are those of files already written; do not change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import Tensor


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries whose names begin with a prefix, without it.

    Args:
        tensors: By name.
        prefix: With its final dot, such as ``"actor."``.
    """
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def optimiser_tensors(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return copies of what an optimiser keeps per parameter, as ``<prefix><parameter>.<entry>``.

    The settings (rates, decay) are not among them: they come from the configuration.

    Args:
        optimiser: Its entries must be tensors, as those of Adam and AdamW are.
        prefix: With its final dot.
    """
    return {
        f"{prefix}{index}.{entry}": value.detach().clone()
        for index, entries in optimiser.state_dict()["state"].items()
        for entry, value in entries.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Give an optimiser the entries that `optimiser_tensors` gave; its settings stay.

    Args:
        optimiser: Of the same parameters in the same order.
        tensors: By name; copied.
        prefix: With its final dot.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in below(tensors, prefix).items():
        index, entry = name.split(".", 1)
        state.setdefault(int(index), {})[entry] = value.clone()
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def pack_generator(generator: np.random.Generator) -> Tensor:
    """Return the state of a PCG64 generator, NumPy's default, as ten whole numbers, (10,) int64.

    They are eight 32-bit words, lowest first (four of the state, four of the increment), then whether half a
    word is spare, and that half.
    """
    state = generator.bit_generator.state
    words = [(state["state"][name] >> (32 * i)) & 0xFFFFFFFF for name in ("state", "inc") for i in range(4)]
    return torch.tensor([*words, state["has_uint32"], state["uinteger"]], dtype=torch.int64)


def unpack_generator(generator: np.random.Generator, packed: Tensor) -> None:
    """Set a PCG64 generator to the state that `pack_generator` gave.

    Args:
        generator: Draws from here on what the packed one would have drawn.
        packed: (10,) int64.
    """
    words = [int(word) for word in packed]
    whole = [sum(word << (32 * i) for i, word in enumerate(words[start : start + 4])) for start in (0, 4)]
    state = dict(generator.bit_generator.state)
    state["state"] = {"state": whole[0], "inc": whole[1]}
    state["has_uint32"], state["uinteger"] = words[8], words[9]
    generator.bit_generator.state = state
