"""What a replay refuses to hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from data.replay.intake import forms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from data.replay.intake import Form
    from data.replay.recording import Recording

_PER_STEP = ("reward", "ends", "continuous", "starts", "actor", "imitation_action")


def check_all(
    recordings: Sequence[Recording], known: Mapping[str, Form], capacity: int, *, imitation: bool
) -> None:
    """Refuse episodes that a replay cannot hold rightly.

    Args:
        recordings: The episodes.
        known: Forms of the episodes before them; empty before the first.
        capacity: Rows of the replay.
        imitation: Whether it holds actions to imitate.

    Raises:
        ValueError: As for `check`, or an episode has actions to imitate where the replay holds none, or lacks
            them.
    """
    for recording in recordings:
        if (recording.imitation_action is not None) != imitation:
            raise ValueError(
                f"Episode {recording.id!r} has {'no' if imitation else 'an'} imitation_action, but "
                f"the replay was made with imitation={imitation}; they must agree."
            )
        check(recording, known or forms(recordings[0]), capacity)


def check(recording: Recording, known: Mapping[str, Form], capacity: int) -> None:
    """Refuse an episode that a replay cannot hold rightly.

    Args:
        recording: The episode.
        known: Forms of the episodes before it; empty before the first.
        capacity: Rows of the replay.

    Raises:
        ValueError: It has no step or too many, lengths disagree, its rows have another form, or a value is
            not finite.
    """
    steps = len(recording)
    if not 0 < steps < capacity:
        raise ValueError(
            f"Episode {recording.id!r} has {steps} steps; a replay of {capacity} rows holds 1 to "
            f"{capacity - 1}."
        )
    _check_lengths(recording)
    if known and (new := forms(recording)) != known:
        ours = {key: form for key, form in new.items() if known.get(key) != form}
        theirs = {key: form for key, form in known.items() if new.get(key) != form}
        raise ValueError(
            f"Episode {recording.id!r} has rows of {ours}, those before it of {theirs}; a replay holds "
            "episodes of one form."
        )
    acted = slice(None) if recording.actor is None else recording.actor >= 0
    named = {"action": recording.action[acted], **recording.observations}
    if recording.imitation_action is not None:
        named["imitation_action"] = recording.imitation_action[acted]
    if recording.judged:
        named["reward"] = recording.reward[acted]
    for name, value in named.items():
        if value.dtype.kind == "f" and not _finite(value):
            row = int(np.argwhere(~np.isfinite(value))[0, 0])
            raise ValueError(
                f"{name} of episode {recording.id!r} is not finite in row {row}; it is not learned from. "
                "Repair the episode or leave it out."
            )


def _finite(values: NDArray[np.floating]) -> bool:
    flat = values.ravel()
    # A product is not finite if a value is not; much faster, unless values are so large that it overflows.
    return math.isfinite(float(np.dot(flat, flat))) or bool(np.isfinite(flat).all())


def _check_lengths(recording: Recording) -> None:
    steps = len(recording)
    per_step = {name: getattr(recording, name) for name in _PER_STEP} | dict(recording.columns)
    for arrays, length in ((per_step, steps), (recording.observations, steps + 1)):
        for name, value in arrays.items():
            if value is not None and len(value) != length:
                raise ValueError(
                    f"{name} of episode {recording.id!r} has {len(value)} rows; {length} are needed for "
                    f"{steps} steps."
                )
    if recording.action.ndim != 2 or not recording.observations:
        raise ValueError(
            f"Episode {recording.id!r} has actions of shape {recording.action.shape} and observations "
            f"{sorted(recording.observations)}; (T, A) and at least one are needed."
        )
    imitated = recording.imitation_action
    if imitated is not None and imitated.shape != recording.action.shape:
        raise ValueError(
            f"imitation_action of episode {recording.id!r} has shape {imitated.shape}; the executed actions "
            f"have {recording.action.shape}."
        )
