"""From any format to any other, one episode in memory at a time, and a receipt for each in its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import StoreError
from data.formats.registry import detect, load
from data.formats.target import refuse_inside_store
from data.receipts import add_receipt, content_hash
from data.store import EpisodeStore

if TYPE_CHECKING:
    from data.records import Episode


@dataclass(frozen=True)
class Converted:
    """What a conversion did.

    Attributes:
        path: What was written.
        ids: The episodes in it, by the id that they had in the source.
        notes: What was assumed, left out or could not be kept, one sentence each.
        receipts: How many receipts were written into the source's store.
    """

    path: Path
    ids: tuple[str, ...]
    notes: tuple[str, ...] = ()
    receipts: int = 0


@dataclass
class _Passed:
    """Lets episodes through and remembers which, with the content they had."""

    store: EpisodeStore | None
    progress: Callable[[str], None]
    seen: dict[str, str] = field(default_factory=dict)

    def through(self, episodes: Iterator[Episode]) -> Iterator[Episode]:
        for episode in episodes:
            # The files were just read and checked; should one change from now on, the receipt does not fit.
            self.seen[episode.id] = content_hash(self.store, episode.id) if self.store else ""
            yield episode
            self.progress(episode.id)


def convert(
    source: Path | str,
    target: Path | str,
    to: str,
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    read: Mapping[str, Any] | None = None,
    write: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Converted:
    """Write the episodes of a data set in another format.

    The target is there whole at the end or not at all. Where the source is our own store, each episode gets a
    receipt in it, which `prune` asks for.

    Args:
        source: What to read.
        target: Where to write; must not exist.
        to: Name of the format to write, or ``module:Class``.
        format: Format of the source; recognised when None.
        read: Options of the format that is read.
        write: Options of the format that is written.
        progress: Called with the id of each episode that was passed on.

    Raises:
        FileExistsError: There is something at the target.
        FileNotFoundError: There is nothing at the source.
        DatasetError: The source cannot be read, or the format cannot hold it.
        StoreError: An episode of the store is damaged.
        ValueError: A format or an option is unknown, or the target lies inside an episode store.
        ImportError: A package is missing; names the extra that brings it.
    """
    source, target = Path(source), Path(target)
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} exists already; choose another name or remove it first.")
    refuse_inside_store(target)
    if not source.exists():
        raise FileNotFoundError(f"There is nothing at {source}; check the path.")
    name, writer = format or detect(source), load(to)
    opened = load(name).read(source, **(read or {}))
    store = EpisodeStore(source) if name == "zarr" else None
    passed = _Passed(store, progress)
    lost = writer.write(
        passed.through(opened.episodes), opened.features, opened.action_spec, target, **(write or {})
    )
    notes = [*opened.notes, *lost]
    count = 0
    for id_, content in passed.seen.items():
        if store is None:
            break
        try:
            add_receipt(
                store,
                id_,
                kind="exported",
                target=str(target),
                format=writer.name,
                content=content,
                lost=lost,
            )
            count += 1
        except StoreError as error:
            notes.append(f"{error} The episode stays unmarked, so `prune` will keep it.")
            break
    return Converted(target, tuple(passed.seen), tuple(notes), count)
