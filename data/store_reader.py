"""The reading half of a store: any number of processes may look at its episodes while one writes."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data.episode_folder import check_pictures, open_pictures, read_episode, read_facts
from data.errors import DamagedEpisodeError, StoreError
from data.features import Feature, Features, from_array, from_json
from data.steps import Outcome, check_id, is_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from data.picture_files import Pictures
    from data.records import Episode
    from data.store_root import StoreRoot

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Summary:
    """What a store knows of an episode without reading its arrays.

    Attributes:
        id: Name of the episode.
        steps: Its length T.
        outcome: How it ended.
        task: The task in words.
        seed: Seed of the reset.
    """

    id: str
    steps: int
    outcome: Outcome
    task: str
    seed: int | None


class StoreReader:
    """Episodes of a folder, by id, to read.

    Args:
        path: The folder.
        root: What it says of its episodes.
    """

    def __init__(self, path: Path, root: StoreRoot) -> None:
        self.path = path
        self._root = root

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return self._root.exists

    @property
    def features(self) -> Features:
        """What observations contain: as declared, or else as found in the first episode."""
        declared = self._root.declared("features")
        if declared is not None:
            return from_json(declared)
        if not len(self):
            return {}
        folder = self._folder(self.ids()[0])
        found = {
            key: from_array(rows[0])
            for key, rows in read_episode(folder, pictures=False).observations.items()
        }
        for path, known in read_facts(folder).get("pictures", {}).items():
            if path.startswith("observations/"):
                found[path.removeprefix("observations/")] = Feature(tuple(known["shape"][1:]), "uint8")
        return found

    @property
    def action_spec(self) -> dict[str, Any] | None:
        """What actions mean, for `ActionSpec.from_json`; None where it was not declared."""
        declared: dict[str, Any] | None = self._root.declared("action_spec")
        return declared

    def ids(self) -> list[str]:
        """Names of the episodes, sorted; folders whose name no episode can have are none.

        Raises:
            StoreError: There is no store here.
        """
        self._root.read()
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if is_id(entry.name) and entry.is_dir()]
        return sorted(names)

    def __len__(self) -> int:
        """Number of episodes; 0 before the first write."""
        return len(self.ids()) if self.exists else 0

    def __contains__(self, id_: object) -> bool:
        """Whether there is an episode of this id."""
        return isinstance(id_, str) and is_id(id_) and (self.path / id_).is_dir()

    def __iter__(self) -> Iterator[Episode]:
        """Every readable episode in the order of `ids`.

        A damaged one is logged as an error and left out; one that is removed meanwhile is left out.
        """
        for id_ in self.ids():
            try:
                yield self.read(id_)
            except KeyError:
                continue
            except DamagedEpisodeError as error:
                logger.error("%s It is left out.", error)  # noqa: TRY400 - a traceback would bury what it says

    def read(self, id_: str, *, pictures: bool = True) -> Episode:
        """Read one episode, every byte checked.

        Args:
            id_: Name of the episode.
            pictures: Whether to unpack camera pictures; without, observations and streams lack them, and
                `pictures` reads them one by one.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: A file of it is missing or was changed.
            StoreError: Its pictures do not fit into memory.
        """
        with self._there(id_) as folder:
            return read_episode(folder, pictures=pictures)

    def pictures(self, id_: str, key: str, *, stream: bool = False) -> Pictures:
        """Open the pictures of one camera, to read some of them without unpacking all.

        Args:
            id_: Name of the episode.
            key: Such as ``"observation.images.wrist"``.
            stream: Whether it is a stream, or else an observation of the steps.

        Returns:
            N pictures, read by row, each checked; close them after use.

        Raises:
            KeyError: There is no such episode, or no pictures of this key.
            DamagedEpisodeError: A file is missing or was changed.
        """
        path = f"streams/{key}/values" if stream else f"observations/{key}"
        with self._there(id_) as folder:
            return open_pictures(folder, path)

    def summary(self, id_: str) -> Summary:
        """What is known of one episode without reading its arrays.

        Raises:
            KeyError: There is no such episode.
            DamagedEpisodeError: Its attributes are missing or were changed.
        """
        with self._there(id_) as folder:
            facts = read_facts(folder)
        return Summary(id_, facts["steps"], Outcome(facts["outcome"]), facts["task"], facts["seed"])

    def damages(self) -> dict[str, str]:
        """What is wrong with each damaged episode; empty when all can be read.

        Pictures are unpacked one at a time, so that no episode is too large for it.
        """
        found = {}
        for id_ in self.ids():
            try:
                with self._there(id_) as folder:
                    read_episode(folder, pictures=False)
                    check_pictures(folder)
            except KeyError:  # removed meanwhile
                continue
            except StoreError as error:
                found[id_] = str(error)
        return found

    @contextmanager
    def _there(self, id_: str) -> Iterator[Path]:
        """Folder of an episode; one that is removed while it is read is none, and not damaged."""
        folder = self._folder(id_)
        try:
            yield folder
        except DamagedEpisodeError:
            self._folder(id_)
            raise

    def _folder(self, id_: str) -> Path:
        if id_ not in self:
            raise KeyError(f"No episode {id_!r} in {self.path}, which holds {len(self)}.")
        return self.path / check_id(id_)
