"""Reads an episode for checking, also one whose pictures do not fit into memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from data.episode_folder import check_pictures, read_facts
from data.errors import DamagedEpisodeError, StoreError
from data.features import Feature
from data.validate.signals import Signal, observation_times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from data.records import Episode
    from data.store import EpisodeStore

_OBSERVATIONS = "observations/"


@contextmanager
def opened(store: EpisodeStore, id_: str) -> Iterator[tuple[Episode, list[Signal]]]:
    """An episode, and signals of the pictures that it lacks because they are too large.

    Those are unpacked one at a time, from files that stay open in the block. Pictures of streams and videos
    are only checked for damage then.

    Raises:
        DamagedEpisodeError: A file is missing or was changed.
        StoreError: It was written by a newer version.
    """
    try:
        episode = store.read(id_)
    except DamagedEpisodeError:
        raise
    except StoreError:
        episode = store.read(id_, pictures=False)
    else:
        yield episode, []
        return
    check_pictures(store.path / id_)
    with ExitStack() as files:
        yield episode, list(_pictures(store, episode, files))


def _pictures(store: EpisodeStore, episode: Episode, files: ExitStack) -> Iterator[Signal]:
    times = observation_times(episode)
    for path in read_facts(store.path / episode.id).get("pictures", {}):
        key = path.removeprefix(_OBSERVATIONS)
        try:
            rows: Any = files.enter_context(store.pictures(episode.id, key))
        except (StoreError, KeyError):  # a video, which cannot be read in parts, or a stream
            continue
        yield Signal(key, rows, times, Feature(rows.shape[1:], "uint8"))
