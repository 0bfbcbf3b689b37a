"""The whole content of a replay as JSON facts and arrays, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from data.replay.ledger import Ledger
    from data.replay.rows import Rows
    from data.replay.transitions import Transitions

type Parts = tuple[Rows, Transitions, Ledger]
"""What a replay consists of."""


def state_of(parts: Parts, settings: Mapping[str, Any]) -> dict[str, Any]:
    """As `ReplayBuffer.state`."""
    rows, transitions, ledger = parts
    used = min(ledger.rows, ledger.capacity)
    arrays: dict[str, NDArray[Any]] = {**transitions.arrays(used), **rows.arrays(used)}
    facts = {
        "settings": dict(settings),
        "forms": {name: [list(shape), dtype.str] for name, (shape, dtype) in rows.forms.items()},
        "ledger": ledger.state(),
    }
    return {"facts": facts, "arrays": {name: array.copy() for name, array in arrays.items()}}


def restore(parts: Parts, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """As `ReplayBuffer.load_state`."""
    facts, arrays = state["facts"], state["arrays"]
    if facts["settings"] != dict(settings):
        raise ValueError(
            f"The state is of a replay with {facts['settings']}, this one has {settings}; "
            "make it with the same settings."
        )
    rows, transitions, ledger = parts
    forms = {name: (tuple(shape), np.dtype(kind)) for name, (shape, kind) in facts["forms"].items()}
    ledger.load_state(facts["ledger"])
    rows.load(forms, arrays, ledger.held)
    transitions.load(arrays)
