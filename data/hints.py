"""The end of every message about an unknown name: what may have been meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    most: int = 1,
    likeness: float = 0.6,
    quoted: bool = True,
) -> str:
    """Ask for the nearest known names.

    Args:
        name: What was given.
        known: What there is.
        otherwise: Returned where nothing is near.
        most: How many names are offered at most.
        likeness: Least ratio of ``difflib.SequenceMatcher`` that counts as near, 0 .. 1.
        quoted: Whether names stand in quotes, as values do; words of a command line do not.

    Returns:
        Such as ``did you mean 'steps'?`` or ``did you mean collect or select?``.
    """
    near = get_close_matches(name, list(known), n=most, cutoff=likeness)
    if not near:
        return otherwise
    return f"did you mean {' or '.join(map(repr, near) if quoted else near)}?"
