"""One recorded episode, found by the folder or data set that holds it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.formats.registry import open_source
from data.hints import did_you_mean
from data.records import Episode
from data.store import EpisodeStore


def find_episode(path: Path) -> tuple[EpisodeStore, str]:
    """The store and the id of an episode that is given by its folder.

    Args:
        path: folder of an episode inside its store; or a store, or a run with one, which means its first
            episode.

    Raises:
        FileNotFoundError: if there is no episode; names those nearby.
    """
    parent = EpisodeStore(path.parent)
    if parent.exists and path.name in parent:
        return parent, path.name
    for folder in (path, path / "episodes", *sorted((path / "shown").glob("*"))):
        store = EpisodeStore(folder)
        if store.exists and len(store):
            return store, store.ids()[0]
    known = f"; the store has {', '.join(parent.ids()[:5])}, ..." if parent.exists and len(parent) else ""
    raise FileNotFoundError(f"{path} is no episode and holds none{known}: give the folder of an episode")


def read_episode(
    path: Path,
    id_: str = "",
    format: str | None = None,  # noqa: A002 - the usual word
    read: Mapping[str, Any] | None = None,
) -> Episode:
    """One episode of whatever holds it.

    Args:
        path: as for `find_episode`, or a data set of any other format.
        id_: which episode; the first when empty.
        format: of the data set; recognised by its content when None.
        read: options of the format.

    Raises:
        FileNotFoundError: if there is no such episode; names those nearby.
    """
    if format is not None or read:
        return _from_source(path, id_, format, read or {})
    try:
        store, first = find_episode(path)
    except FileNotFoundError:
        if not path.exists():
            raise
        return _from_source(path, id_, None, {})
    if id_ and id_ not in store:
        raise FileNotFoundError(f"{store.path} has no episode {id_!r}; {_nearby(id_, store.ids())}")
    return store.read(id_ or first)


def _from_source(path: Path, id_: str, form: str | None, read: Mapping[str, Any]) -> Episode:
    passed = []
    for episode in open_source(path, form, **read).episodes:
        if id_ in ("", episode.id):
            return episode
        passed.append(episode.id)
    raise FileNotFoundError(f"{path} has no episode {id_!r}; {_nearby(id_, passed)}")


def _nearby(id_: str, known: Sequence[str]) -> str:
    return did_you_mean(id_, known, f"it has {', '.join(known[:5]) or 'none'}")
