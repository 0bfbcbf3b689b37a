"""What a critic says of a recorded episode, as curves over its steps, whichever critic it is.

A folder names its critic itself: by ``kind`` in its ``critic.json``, or by that of the run it belongs to. A
kind is a name from `KINDS` or ``module:Class``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from data.hints import did_you_mean
from data.imports import ImportPathError, import_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from data.records import Episode

KINDS: Mapping[str, str] = {"refine": "robot_rl.correct.residual_critic:ResidualCritic"}
"""Where the class of each kind of critic is."""
FILES = ("critic.json", "config.json")
"""Files of a folder that may name its kind, the first that is there counts."""


@runtime_checkable
class ValueCurves(Protocol):
    """A critic that can be shown beside an episode."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the critic that lies in a folder; no pickles.

        Raises:
            ValueError: There is none, or it is damaged; says what to do.
            OSError: A file cannot be read.
        """
        ...

    def value_curves(self, episode: Episode) -> Mapping[str, NDArray[np.float64]]:
        """Values over the steps of an episode.

        Args:
            episode: Of the task that the critic was trained on.

        Returns:
            Curves by name, (T,) each, in units of return; NaN where the critic cannot say. A slash in a name
            groups curves, such as ``executed/min``.

        Raises:
            ValueError: The episode lacks what the critic reads, or has it in another size.
        """
        ...


def open_critic(folder: Path | str) -> ValueCurves:
    """Read the critic of a folder.

    Args:
        folder: A run that trained one (``robot-rl refine``), or a folder with a ``critic.json``.

    Raises:
        FileNotFoundError: There is no such folder, or nothing in it names a critic.
        ValueError: What it names is unknown or cannot be imported, or the critic is damaged.
    """
    folder = Path(folder)
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"{folder} holds no critic: no {' and no '.join(FILES)} in it; give what robot-rl refine wrote."
        )
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} does not say which kind of critic this is ({error!r}).") from error
    return _class(str(kind), file).open(folder)


def _class(kind: str, file: Path) -> type[ValueCurves]:
    path = KINDS.get(kind, kind)
    if ":" not in path:
        hint = did_you_mean(kind, list(KINDS), f"these have one: {', '.join(KINDS)}")
        raise ValueError(f"{file} is of kind {kind!r}, which has no critic; {hint}, or module:Class.")
    try:
        found = import_object(path)
    except ImportPathError as error:
        raise ValueError(f"The critic that {file} names, {error}.") from error
    if not (isinstance(found, type) and issubclass(found, ValueCurves)):
        raise ValueError(f"{path!r}, which {file} names, lacks open or value_curves.")  # noqa: TRY004 - the file is wrong, not a type
    return found
