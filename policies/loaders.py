"""Where policies come from: one loader per kind of source, open to others by an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from typing import Any

import torch

from data.hints import did_you_mean
from data.imports import import_object
from policies.policy import Policy

ENTRY_POINTS = "robot_rl.policies"
"""Entry point group under which other packages register loaders: name = ``module:LOADER``."""


@dataclass(frozen=True)
class Loader:
    """One kind of source.

    Attributes:
        name: short, for messages.
        looked_for: by what a source of this kind is recognised, for the message when nothing fits.
        matches: whether a source, as the user wrote it, is of this kind; quick, never an error.
        load: (source, device, options) -> a frozen policy in evaluation mode.
        options: ``module:Class`` of a dataclass with the options that `load` takes; empty: none. An option
            of another kind of source is refused, except ``default_features`` and ``default_action_spec``,
            which a loader takes if it has a use for them.
    """

    name: str
    looked_for: str
    matches: Callable[[str], bool]
    load: Callable[[str, torch.device | str, dict[str, Any]], Policy]
    options: str = ""

    def accepted(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options that this loader takes.

        Args:
            options: as given; None means not given.

        Raises:
            TypeError: if one is unknown to it.
        """
        known = [field.name for field in fields(import_object(self.options))] if self.options else []
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in known and name not in DEFAULTS:
                hint = did_you_mean(name, known, f"it takes {', '.join(known) or 'no options'}.")
                raise TypeError(f"a policy of kind {self.name!r} has no option {name!r}; {hint}")
        return {name: value for name, value in given.items() if name in known}


DEFAULTS = ("default_features", "default_action_spec")
"""Options that every caller may give: what holds where the policy itself says nothing."""

LOADERS: dict[str, str] = {
    "native": "policies.native_loader:LOADER",
    "remote": "policies.remote_loader:LOADER",
    "openpi": "policies.openpi_loader:LOADER",
    "robomimic": "policies.robomimic_loader:LOADER",
    "lerobot": "policies.lerobot.loader:LOADER",
}
"""Name -> ``module:LOADER``, in the order in which they are asked."""


def loaders() -> list[Loader]:
    """Return every loader, ours first."""
    own = [import_object(path) for path in LOADERS.values()]
    others = [entry.load() for entry in entry_points(group=ENTRY_POINTS) if entry.name not in LOADERS]
    return [*own, *others]
