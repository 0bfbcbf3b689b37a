"""Our own store as a format among the others, the one that keeps everything."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from data.config import from_dict
from data.errors import DamagedEpisodeError, DatasetError, StoreError
from data.features import from_array
from data.formats.registry import Format, NoOptions, Source
from data.formats.target import new_target
from data.store import EpisodeStore
from data.store_root import is_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from data.features import Features
    from data.records import Episode

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadZarr:
    """How a store is read.

    Attributes:
        skip_damaged: Log a damaged episode and leave it out instead of raising.
    """

    skip_damaged: bool = False


class ZarrStore(Format):
    """A folder that `data.store.EpisodeStore` wrote."""

    name: ClassVar[str] = "zarr"
    summary: ClassVar[str] = "robot-rl's own store: everything, checked by checksums"
    looked_for: ClassVar[str] = 'a folder with a zarr.json whose format is "robot-rl episodes"'
    reading: ClassVar[type] = ReadZarr
    writing: ClassVar[type | None] = NoOptions

    def matches(self, path: Path) -> bool:
        """Whether the folder's group says that it is a store."""
        return is_store(path)

    def read(self, path: Path, **options: Any) -> Source:  # noqa: ANN401 - as in Format
        """Open a store; see `ReadZarr` for the options.

        Raises:
            StoreError: It is no store, or while going through it, an episode is damaged.
        """
        chosen = from_dict(ReadZarr, options)
        store = EpisodeStore(path)
        features = _features(store, chosen.skip_damaged)
        return Source(features, store.action_spec, len(store), _episodes(store, chosen.skip_damaged))

    def write(
        self,
        episodes: Iterable[Episode],
        features: Features,
        action_spec: Mapping[str, Any] | None,
        path: Path,
        **options: Any,  # noqa: ANN401 - as in Format
    ) -> tuple[str, ...]:
        """Write a new store, which keeps everything; see `Format.write`.

        Raises:
            DatasetError: There was no episode.
        """
        from_dict(NoOptions, options)
        with new_target(path) as part:
            store = EpisodeStore(part, features=features or None, action_spec=action_spec)
            for episode in episodes:
                store.write(episode)
            if not len(store):
                raise DatasetError(f"There are no episodes to write to {path}; nothing was written.")
        return ()


def _episodes(store: EpisodeStore, skip_damaged: bool) -> Iterator[Episode]:
    for id_ in store.ids():
        try:
            yield store.read(id_)
        except KeyError as error:
            raise StoreError(
                f"Episode {id_} was removed from {store.path} meanwhile: start again."
            ) from error
        except DamagedEpisodeError as error:
            if not skip_damaged:
                raise
            logger.error("%s It is left out.", error)  # noqa: TRY400 - a traceback would bury what it says


def _features(store: EpisodeStore, skip_damaged: bool) -> Features:
    try:
        return store.features
    except DamagedEpisodeError:
        if not skip_damaged:
            raise
    first = next(_episodes(store, skip_damaged), None)
    return {} if first is None else {key: from_array(rows[0]) for key, rows in first.observations.items()}
