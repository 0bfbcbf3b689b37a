"""Which file formats exist, how one is recognised, and the interface that each of them has.

A format is a subclass of `Format`, imported only when it is needed, so that no reader's dependencies are
loaded for another one. Others add theirs without editing this file: with ``module:Class`` in place of a name,
or with an entry point in the group ``robot_rl.formats``.
"""

from __future__ import annotations

import abc
import importlib.metadata
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from data.errors import DatasetError
from data.features import Feature
from data.hints import did_you_mean
from data.imports import ImportPathError, import_object
from data.records import Episode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from data.features import Features

logger = logging.getLogger(__name__)

FORMATS: dict[str, str] = {
    "zarr": "data.formats.zarr_store:ZarrStore",
    "d4rl": "data.formats.d4rl:D4rl",
    "aloha": "data.formats.aloha:Aloha",
    "diffusion-policy": "data.formats.diffusion_policy:DiffusionPolicy",
    "lerobot": "data.formats.lerobot:LeRobot",
    "robomimic": "data.formats.robomimic:Robomimic",
    "rosbag": "data.formats.rosbag:Rosbag",
}
"""Short name -> ``module:Class``, in the order in which `detect` asks them."""
ENTRY_POINTS = "robot_rl.formats"
"""Entry point group under which other packages register formats."""


@dataclass(frozen=True, eq=False)
class Source:
    """Episodes of a file or folder, read one by one.

    Attributes:
        features: What observations contain, as far as the format says.
        action_spec: What actions mean, as `ActionSpec.to_json` gives it; None where the format does not say.
        count: Number of episodes; None where it is not known before the end.
        episodes: The episodes; can be gone through once.
        notes: What was assumed, left out or could not be kept, one sentence each, for people. Whoever reads
            a source shows them: nothing is lost silently.
    """

    features: Mapping[str, Feature]
    action_spec: dict[str, Any] | None
    count: int | None
    episodes: Iterator[Episode]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoOptions:
    """Options of a format that has none."""


class Format(abc.ABC):
    """One file format.

    Attributes:
        name: Short name, as in `FORMATS`.
        summary: One line for people.
        looked_for: By what `matches` recognises it, for the message when nothing matches.
        reading: Frozen dataclass of the options of `read`; build it with `data.config.from_dict`, which
            refuses unknown ones with a hint.
        writing: The same for `write`; None where the format is only read.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    looked_for: ClassVar[str]
    reading: ClassVar[type] = NoOptions
    writing: ClassVar[type | None] = None

    @abc.abstractmethod
    def matches(self, path: Path) -> bool:
        """Whether this file or folder is of this format, even if broken; quick, and never an error."""

    @abc.abstractmethod
    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - each format has its own options
        """Open a file or folder.

        Args:
            path: What to read.
            **options: Fields of `reading`.

        Raises:
            DatasetError: It is broken or not of this format; also while going through the episodes.
            ImportError: A package is missing; names the extra that brings it.
            ValueError: An option is unknown or has an impossible value.
            TypeError: An option has the wrong type.
        """

    def write(
        self,
        episodes: Iterable[Episode],
        features: Features,
        action_spec: Mapping[str, Any] | None,
        path: Path,
        **options: Any,  # noqa: ANN401 - each format has its own options
    ) -> tuple[str, ...]:
        """Write episodes to a new file or folder, which is there whole at the end or not at all.

        Args:
            episodes: What to write.
            features: What their observations contain.
            action_spec: What their actions mean, as `ActionSpec.to_json` gives it.
            path: Where; must not exist.
            **options: Fields of `writing`.

        Returns:
            What the format could not keep, one sentence each; empty when reading it gives equal episodes.

        Raises:
            DatasetError: This format is only read, or cannot hold these episodes.
            FileExistsError: There is something at the path.
            ImportError: A package is missing; names the extra that brings it.
            ValueError: An option is unknown or has an impossible value.
            TypeError: An option has the wrong type.
        """
        del episodes, features, action_spec, options
        raise DatasetError(
            f"Format {self.name!r} is only read; written are {', '.join(writable_names())}. "
            f"Nothing was written to {path}."
        )


def names() -> list[str]:
    """Every format that is known, ours first."""
    return [*FORMATS, *(name for name in _entry_points() if name not in FORMATS)]


def writable_names() -> list[str]:
    """Every format that can be written."""
    return [each.name for each in _all() if each.writing is not None]


def load(reference: str) -> Format:
    """The format of a name or of ``module:Class``.

    Raises:
        ValueError: The name is unknown (near misses are named), or the class cannot be imported or is no
            `Format`.
    """
    path = FORMATS.get(reference) or _entry_points().get(reference, reference)
    if ":" not in path:
        hint = did_you_mean(reference, names(), f"known: {', '.join(names())}.")
        raise ValueError(f"No format is called {reference!r}; {hint} Or give module:Class.")
    try:
        found = import_object(path)
    except ImportPathError as error:
        raise ValueError(f"Format {path!r} cannot be imported: {error.reason}.") from error
    if not (isinstance(found, type) and issubclass(found, Format)):
        raise ValueError(f"{path!r} is no subclass of data.formats.registry.Format.")  # noqa: TRY004 - the caller's text is wrong, not its type
    made: Format = found()
    return made


def detect(path: Path | str) -> str:
    """Name of the format of a file or folder.

    Raises:
        FileNotFoundError: There is nothing at the path.
        DatasetError: It is of no known format, or of several; lists what was looked for.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is nothing at {path}; check the path.")
    known = _all()
    found = [each.name for each in known if each.matches(path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DatasetError(f"{path} could be {' or '.join(found)}; say which format it is.")
    looked = "; ".join(f"{each.name}: {each.looked_for}" for each in known)
    raise DatasetError(f"{path} is of no known format. Looked for {looked}. Or name the format.")


def open_source(path: Path | str, format: str | None = None, **options: Any) -> Source:  # noqa: A002, ANN401 - the usual word; each format has its own options
    """Open a file or folder of episodes.

    Args:
        path: What to read.
        format: Name of the format or ``module:Class``; recognised by its content when None.
        **options: Of the format.

    Raises:
        FileNotFoundError: There is nothing at the path.
        DatasetError: It cannot be read; see `Format.read`.
        ValueError: The format is unknown.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is nothing at {path}; check the path.")
    return load(format or detect(path)).read(path, **options)


def _entry_points() -> dict[str, str]:
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def _all() -> list[Format]:
    found = []
    for name in names():
        try:
            found.append(load(name))
        except ValueError as error:
            if name in FORMATS:
                raise
            logger.warning("%s It is left out.", error)
    return found
