"""Merges and splits data sets, by episode id; every result is there whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError
from data.features import differences
from data.formats.registry import Source, open_source
from data.formats.target import new_target
from data.steps import check_id
from data.store import EpisodeStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from data.records import Episode

type Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    return


@dataclass(frozen=True)
class Edited:
    """What an edit wrote.

    Attributes:
        counts: Episodes of each new store, by path.
        renamed: New ids by ``source/id`` of those that were renamed.
        notes: What readers assumed or could not keep, one sentence each.
    """

    counts: Mapping[Path, int]
    renamed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def merge(
    sources: Sequence[Path | str],
    target: Path | str,
    *,
    rename: bool = False,
    format: str | None = None,  # noqa: A002 - the usual word
    read: Mapping[str, Any] | None = None,
    progress: Progress = _quiet,
) -> Edited:
    """Put the episodes of several data sets, of any format, into one new store.

    Args:
        sources: What to read, in this order.
        target: Store to write; must not exist.
        rename: Give an id that is taken already a number (``a-2``) and keep the old one in the episode's
            metadata under ``merged_from``; otherwise such an id is refused.
        format: Format of all sources; each is recognised by its content when None.
        read: Options of the format.
        progress: Called with the id of each episode.

    Raises:
        ValueError: There are fewer than two sources, or one is named twice.
        FileExistsError: There is something at the target.
        DatasetError: Features or actions differ, or an id is taken; names them.
        StoreError: An episode is damaged.
    """
    paths = [Path(path) for path in sources]
    if len(paths) < 2 or len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(f"merge got {[str(p) for p in paths]}; give two or more different data sets.")
    opened = [open_source(path, format, **(read or {})) for path in paths]
    for path, source in zip(paths[1:], opened[1:], strict=True):
        _refuse_difference(paths[0], opened[0], path, source)
    renamed: dict[str, str] = {}
    with new_target(target) as part:
        store = EpisodeStore(part, features=opened[0].features or None, action_spec=opened[0].action_spec)
        for path, source in zip(paths, opened, strict=True):
            for episode in source.episodes:
                kept = _with_free_id(episode, store, path, renamed, allowed=rename)
                store.write(kept)
                progress(kept.id)
        count = len(store)
        if not count:
            raise DatasetError(f"There are no episodes in {[str(path) for path in paths]} to merge.")
    return Edited({Path(target): count}, renamed, tuple(note for source in opened for note in source.notes))


def _refuse_difference(first: Path, expected: Source, path: Path, found: Source) -> None:
    lines = differences(expected.features, found.features, expected_by=str(first), found_in=str(path))
    lines += [
        f"{key!r} is in {path} but not in {first}."
        for key in sorted(found.features.keys() - expected.features)
    ]
    lines += _action_difference(expected.action_spec, found.action_spec, first, path)
    if lines:
        raise DatasetError(
            "These data sets cannot be merged: "
            + " ".join(lines)
            + " Convert one of them first, or keep them "
            "apart."
        )


def _action_difference(a: Any, b: Any, first: Path, path: Path) -> list[str]:  # noqa: ANN401 - JSON
    if a == b:
        return []
    if a is None or b is None:
        silent = first if a is None else path
        return [f"{silent} does not say what its actions mean."]
    names = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key) and key != "groups")
    lines = [f"The action's {key} is {a.get(key)} in {first} but {b.get(key)} in {path}." for key in names]
    groups = [{group["name"]: group for group in spec.get("groups", ())} for spec in (a, b)]
    for name in sorted(groups[0].keys() | groups[1].keys()):
        one, other = groups[0].get(name, {}), groups[1].get(name, {})
        lines += [
            f"{field} of action group {name!r} is {one.get(field)} in {first}, {other.get(field)} in {path}."
            for field in sorted(one.keys() | other.keys())
            if one.get(field) != other.get(field)
        ]
    return lines


def _with_free_id(
    episode: Episode, store: EpisodeStore, path: Path, renamed: dict[str, str], *, allowed: bool
) -> Episode:
    if episode.id not in store:
        return episode
    if not allowed:
        raise DatasetError(
            f"Episode id {episode.id!r} of {path} is taken by an earlier data set. Let it be renamed "
            "(rename=True, on the command line --rename), or leave one of them out."
        )
    number = 2
    while f"{episode.id}-{number}" in store:
        number += 1
    free = check_id(f"{episode.id}-{number}")
    renamed[f"{path}/{episode.id}"] = free
    origin = {"source": path.name, "id": episode.id}
    return replace(episode, id=free, metadata={**episode.metadata, "merged_from": origin})


def split(
    source: Path | str,
    target: Path | str,
    part_of: Mapping[str, str],
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    read: Mapping[str, Any] | None = None,
    progress: Progress = _quiet,
) -> Edited:
    """Distribute the episodes of a data set over new stores below one folder.

    Args:
        source: What to read, of any format.
        target: Folder to write; must not exist. Each part becomes a store in it.
        part_of: Part of each episode by id; every episode must have one. See `by_share` and `by_field`.
        format: Format of the source; recognised by its content when None.
        read: Options of the format.
        progress: Called with the id of each episode.

    Raises:
        FileExistsError: There is something at the target.
        DatasetError: An episode has no part, or one that is named does not exist.
        StoreError: An episode is damaged.
    """
    opened = open_source(source, format, **(read or {}))
    missing = dict(part_of)
    counts: Counter[str] = Counter()
    if not part_of:
        raise DatasetError(f"There are no episodes in {source} to split.")
    with new_target(target) as folder:
        folder.mkdir()
        stores = {
            name: EpisodeStore(
                folder / check_id(name), features=opened.features or None, action_spec=opened.action_spec
            )
            for name in dict.fromkeys(part_of.values())
        }
        for episode in opened.episodes:
            name = missing.pop(episode.id, None)
            if name is None:
                raise DatasetError(f"Episode {episode.id!r} of {source} is in no part; name one for it.")
            stores[name].write(episode)
            counts[name] += 1
            progress(episode.id)
        if missing:
            raise DatasetError(f"{source} has no episodes {sorted(missing)[:5]}; check the ids.")
    return Edited({Path(target) / name: counts[name] for name in stores}, notes=opened.notes)


def by_share(ids: Sequence[str], shares: Mapping[str, float], seed: int = 0) -> dict[str, str]:
    """Draw parts of given shares at random, the same for the same seed.

    Counts are the shares rounded so that they add up (largest remainder); a part with a positive share gets
    at least one episode while there are enough.

    Args:
        ids: Episodes, at least as many as there are parts.
        shares: Share of each part, adding up to 1.
        seed: Of the draw.

    Raises:
        ValueError: The shares are not positive, do not add up, or there are too few episodes.
    """
    if not (shares and min(shares.values()) > 0 and abs(sum(shares.values()) - 1) <= 1e-6):
        raise ValueError(f"shares are {dict(shares)}; give positive numbers that add up to 1.")
    if len(ids) < len(shares):
        raise ValueError(f"{len(ids)} episodes cannot fill {len(shares)} parts {list(shares)}.")
    counts = _rounded(len(ids), np.array(list(shares.values())))
    order = np.random.default_rng(seed).permutation(sorted(ids)).tolist()
    names = np.repeat(list(shares), counts).tolist()
    return dict(zip(order, names, strict=True))


def _rounded(total: int, shares: NDArray[np.float64]) -> list[int]:
    exact = shares / shares.sum() * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    while (counts == 0).any():  # the greatest part gives one to an empty one
        counts[counts.argmax()] -= 1
        counts[counts.argmin()] += 1
    return [int(count) for count in counts]


def by_field(episodes: Iterator[Episode], name: str) -> dict[str, str]:
    """Parts by a fact of the episodes: ``outcome``, ``operator``, ``robot`` or ``task``.

    Raises:
        ValueError: There is no such fact.
    """
    allowed = ("outcome", "operator", "robot", "task")
    if name not in allowed:
        raise ValueError(f"Episodes cannot be split by {name!r}; choose from {', '.join(allowed)}.")
    values = {episode.id: str(getattr(episode, name)) for episode in episodes}
    folders: dict[str, str] = {}
    for value in sorted(set(values.values())):
        folder = _folder_name(value)
        number = 1
        while folder in folders.values():
            number += 1
            folder = f"{_folder_name(value)}-{number}"
        folders[value] = folder
    return {id_: folders[value] for id_, value in values.items()}


def _folder_name(text: str) -> str:
    """A value as the name of a folder; nothing is lost, since every episode keeps the value."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip("-._")
    return name[:100] or "none"
