"""Policy classes by name or import path, so that a new policy edits no file of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.hints import did_you_mean
from data.imports import ImportPathError, import_object, import_path

if TYPE_CHECKING:
    from policies.policy import Policy

REGISTERED: dict[str, str] = {
    "flow": "policies.flow:FlowPolicy",
}
"""Short name -> ``module:Class``."""


def resolve(reference: str) -> type[Policy]:
    """Return the policy class of a registered name or of ``module:Class``.

    Args:
        reference: such as "flow" or "my_package.my_module:MyPolicy".

    Raises:
        ValueError: if the name is unknown (near misses are named), the module lacks the class, or the class
            is no `Policy`.
    """
    from policies.policy import Policy

    path = REGISTERED.get(reference, reference)
    if ":" not in path:
        hint = did_you_mean(reference, REGISTERED, f"known: {', '.join(sorted(REGISTERED))}.")
        raise ValueError(f"no policy is called {reference!r}; {hint} Or give module:Class")
    try:
        found = import_object(path)
    except ImportPathError as error:
        raise ValueError(f"policy class {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(  # noqa: TRY004 - the caller's text is wrong, not its type
            f"{path!r} is no subclass of policies.policy.Policy"
        )
    return found


def reference_of(cls: type) -> str:
    """Return the registered name of a class, or its ``module:Class``."""
    path = import_path(cls)
    return next((name for name, known in REGISTERED.items() if known == path), path)
