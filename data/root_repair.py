"""Makes the ``zarr.json`` of a store again from its episodes: each repeats what the store declares."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from data.episode_folder import GROUP_FILE, digest_of, read_facts
from data.errors import LockedStoreError, StoreError
from data.lock import FileLock
from data.manifest import write_new_bytes
from data.steps import is_id
from data.store_root import FORMAT, StoreRoot
from data.zarr_files import group_bytes

if TYPE_CHECKING:
    from pathlib import Path

_DECLARED = ("features", "action_spec")
_WAIT_S = 0.5


def needs_repair(path: Path) -> bool:
    """Whether a folder holds episodes, and no file that says rightly what they are."""
    try:
        StoreRoot(path, GROUP_FILE, None, None).read()
    except StoreError:
        return bool(_episodes(path)[0])
    return False


def repair_root(path: Path) -> tuple[str, ...]:
    """Make the file of a store again where it is missing or damaged; a damaged one is kept, hidden.

    Args:
        path: Folder of the store.

    Returns:
        What was done and what could not be restored, one sentence each; nothing where all is well.

    Raises:
        StoreError: No episode can be read, so that there is nothing to make it from; or it cannot be written.
        LockedStoreError: Somebody is recording into the store.
    """
    try:
        StoreRoot(path, GROUP_FILE, None, None).read()
    except StoreError as damage:
        declared, damaged = _episodes(path)
        if not declared:
            raise
        attributes, notes = _agreed(declared)
        kept = _replace(path, attributes)
        aside = f"; the damaged one is {kept} now" if kept else ""
        made = f"{path / GROUP_FILE} was made again from {len(declared)} episodes{aside}. It was so: {damage}"
        left = [f"Episode {id_} is damaged too and was not asked." for id_ in damaged]
        return (made, *notes, *left)
    return ()


def _episodes(path: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What each readable episode repeats, by id, and which cannot be read."""
    declared: dict[str, dict[str, Any]] = {}
    damaged: list[str] = []
    for folder in sorted(path.iterdir()) if path.is_dir() else ():
        if not is_id(folder.name) or not (folder / GROUP_FILE).is_file():
            continue
        try:
            facts = read_facts(folder)
        except StoreError:
            damaged.append(folder.name)
        else:
            declared[folder.name] = {what: facts.get(what) for what in _DECLARED}
    return declared, damaged


def _agreed(declared: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    attributes: dict[str, Any] = {"format": FORMAT, "version": 1}
    notes = []
    for what in _DECLARED:
        found: dict[str, str] = {}
        for id_, facts in declared.items():
            found.setdefault(json.dumps(facts[what], sort_keys=True), id_)
        attributes[what] = next(iter(declared.values()))[what] if len(found) == 1 else None
        if len(found) > 1:
            first, second, *_ = found.values()
            notes.append(
                f"{what} could not be restored: episodes {first} and {second} differ. The store declares "
                "none now; each episode still says its own."
            )
    return attributes, notes


def _replace(path: Path, attributes: dict[str, Any]) -> str:
    """Write the file; gives the name under which a damaged one is kept, or nothing."""
    file, kept = path / GROUP_FILE, ""
    content = group_bytes({**attributes, "sha256": digest_of(attributes)})
    try:
        if os.path.lexists(file):
            lock = FileLock(file)
            if not lock.acquire(_WAIT_S):
                raise LockedStoreError(f"{path} is being written to: repair {file} when that has ended.")
            with lock:
                kept = _unused(path)
                file.rename(path / kept)
                write_new_bytes(file, content)
        else:
            write_new_bytes(file, content)
    except OSError as error:
        raise StoreError(f"{file} cannot be made again: {error.strerror} ({error.filename}).") from error
    return kept


def _unused(path: Path) -> str:
    number = 1
    while os.path.lexists(path / f".{GROUP_FILE}.damaged-{number}"):
        number += 1
    return f".{GROUP_FILE}.damaged-{number}"
